/* SPDX-License-Identifier: Apache-2.0 */
/* job_train: what is trained and how it learns: the model, the optimizer, its rates. */
#include <inttypes.h>
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

static enum err_code read_rate(const struct json_at *optimizer, struct rate_spec *rate,
                               struct err *err)
{
    static const struct json_range range = {.min = 0, .max = 1e6};
    struct json_at at = json_at_member(optimizer, "learning_rate");
    if (!at.value)
        return json_at_fail(&at, err, "a number from 0 to 1000000 or an object");
    if (!json_at_is_object(&at))
        return json_at_double(&at, range, &rate->constant, err);

    int variant = 0;
    TRY(job_fields_check(&at, FIELDS_RATE, &variant, err));
    TRY(job_fields_read(&at, FIELDS_RATE, variant, rate, err));
    if (variant == RATE_CONSTANT)
        return ERR_OK;

    struct json_at boundaries = json_at_member(&at, "boundaries");
    struct json_at values = json_at_member(&at, "values");
    TRY(json_at_array(&boundaries, 1, LIMIT_RATE_BOUNDARIES, "update numbers", err));
    size_t count = json_at_count(&boundaries);
    TRY(json_at_array(&values, count + 1, count + 1, "rates, one more than boundaries", err));
    rate->boundaries = calloc(count, sizeof(*rate->boundaries));
    rate->values = calloc(count + 1, sizeof(*rate->values));
    if (!rate->boundaries || !rate->values)
        return err_set(err, ERR_NO_MEMORY, "out of memory for %zu boundaries", count);
    rate->count = count;
    for (size_t i = 0; i < count; i++) {
        struct json_at boundary = json_at_element(&boundaries, i);
        TRY(json_at_u64(&boundary, 1, LIMIT_STEPS, &rate->boundaries[i], err));
        if (i > 0 && rate->boundaries[i] <= rate->boundaries[i - 1])
            return json_at_fail(&boundary, err, "more than the boundary before it, %" PRIu64,
                                rate->boundaries[i - 1]);
    }
    for (size_t i = 0; i <= count; i++) {
        struct json_at value = json_at_element(&values, i);
        TRY(json_at_double(&value, range, &rate->values[i], err));
    }
    return ERR_OK;
}

enum err_code job_read_optimizer(const struct json_at *job, struct optimizer_spec *spec,
                                 struct err *err)
{
    struct json_at at = json_at_member(job, "optimizer");
    int kind = 0;
    TRY(job_fields_check(&at, FIELDS_OPTIMIZER, &kind, err));
    spec->kind = (enum optimizer_kind)kind;
    TRY(read_rate(&at, &spec->learning_rate, err));
    return job_fields_read(&at, FIELDS_OPTIMIZER, kind, spec, err);
}
