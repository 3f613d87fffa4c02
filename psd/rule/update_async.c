/* SPDX-License-Identifier: Apache-2.0 */
/* update_async: every contribution is an update of its own, published at once. */
#include "psd/rule/update_rule_int.h"

static enum err_code contribute(struct update *update, struct err *err)
{
    struct buf *next = NULL;
    enum err_code code = update->shard->next(update, &next, err);
    if (code != ERR_OK)
        return code;
    values_compute(update->values, update->step, update->grads, next->data, &update->bad_slice);
    update->shard->commit(update, next);
    return ERR_OK;
}

const struct update_rule update_async = {.contribute = contribute};
