/* SPDX-License-Identifier: Apache-2.0 */
/* update_rule: every rule by its mode. */
#include "psd/rule/update_rule.h"

#include "psd/rule/update_rule_int.h"

static const struct update_rule *const rules[] = {
    [CONSISTENCY_ASYNC] = &update_async,
};

const struct update_rule *update_rule_of(enum consistency_mode mode)
{
    ASSERT((size_t)mode < ARRAY_SIZE(rules) && rules[mode]);
    return rules[mode];
}
