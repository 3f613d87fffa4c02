/* SPDX-License-Identifier: Apache-2.0 */
/* update_rule_int: the rows, one a file. */
#ifndef PSD_RULE_UPDATE_RULE_INT_H
#define PSD_RULE_UPDATE_RULE_INT_H

#include "psd/rule/update_rule.h"

extern const struct update_rule update_async; /* update_async.c */

#endif
