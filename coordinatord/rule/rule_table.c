/* SPDX-License-Identifier: Apache-2.0 */
/* rule_table: every rule by its mode. */
#include "common/base/base.h"
#include "coordinatord/rule/rule_int.h"

static const struct rule *const rules[] = {
    [CONSISTENCY_ASYNC] = &rule_async,
};

const struct rule *rule_of(enum consistency_mode mode)
{
    ASSERT((size_t)mode < ARRAY_SIZE(rules) && rules[mode]);
    return rules[mode];
}
