/* SPDX-License-Identifier: Apache-2.0 */
/* rule_int: the rows, one a file. */
#ifndef COORDINATORD_RULE_RULE_INT_H
#define COORDINATORD_RULE_RULE_INT_H

#include "coordinatord/rule/rule.h"

extern const struct rule rule_async; /* rule_async.c */

#endif
