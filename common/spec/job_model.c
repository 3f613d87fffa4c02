/* SPDX-License-Identifier: Apache-2.0 */
/* job_model: what is trained. */
#include <stdlib.h>

#include "common/formats/json.h"
#include "common/spec/job_fields.h"
#include "common/spec/job_parts_int.h"

static enum err_code read_hidden(const struct json_at *model, struct model_spec *spec,
                                 struct err *err)
{
    struct json_at hidden = json_at_member(model, "hidden");
    size_t count = 1;
    if (hidden.value) {
        TRY(json_at_array(&hidden, 1, LIMIT_HIDDEN_LAYERS, "layer sizes", err));
        count = json_at_count(&hidden);
    }
    spec->hidden = calloc(count, sizeof(*spec->hidden));
    if (!spec->hidden)
        return err_set(err, ERR_NO_MEMORY, "out of memory for %zu layers", count);
    spec->hidden_count = count;
    spec->hidden[0] = 128;
    for (size_t i = 0; hidden.value && i < count; i++) {
        struct json_at units = json_at_element(&hidden, i);
        TRY(json_at_u32(&units, 1, LIMIT_LAYER_UNITS, &spec->hidden[i], err));
    }
    return ERR_OK;
}

enum err_code job_read_model(const struct json_at *job, struct model_spec *spec, int *ret_variant,
                             struct err *err)
{
    struct json_at at = json_at_member(job, "model");
    TRY(job_fields_check(&at, FIELDS_MODEL, ret_variant, err));
    struct json_at name = json_at_member(&at, "name");
    TRY(json_at_string(&name, 1, LIMIT_NAME_BYTES, &spec->name, err));
    TRY(job_fields_read(&at, FIELDS_MODEL, *ret_variant, spec, err));
    return *ret_variant == MODEL_MLP ? read_hidden(&at, spec, err) : ERR_OK;
}
