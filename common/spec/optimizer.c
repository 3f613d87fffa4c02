/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer: what is made of the rows, beside the words and checks of job_fields. */
#include "common/spec/optimizer.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

#include "common/base/limits.h"
#include "common/spec/job_fields.h"
#include "common/spec/optimizer_int.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum err_code try_code_ = (call);                                                          \
        if (try_code_ != ERR_OK)                                                                   \
            return try_code_;                                                                      \
    } while (0)

static const struct json_range rate_range = {.min = 0, .max = 1e6};

/* ---- learning rates -------------------------------------------------------------------------- */

static enum err_code read_constant(const struct json_at *at, struct rate_spec *rate,
                                   struct err *err)
{
    return job_fields_read(at, FIELDS_RATE, RATE_CONSTANT, rate, err);
}

static enum err_code read_piecewise(const struct json_at *at, struct rate_spec *rate,
                                    struct err *err)
{
    struct json_at boundaries = json_at_member(at, "boundaries");
    struct json_at values = json_at_member(at, "values");
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
        TRY(json_at_double(&value, rate_range, &rate->values[i], err));
    }
    return ERR_OK;
}

static enum err_code read_rate(const struct json_at *at, struct rate_spec *rate, struct err *err)
{
#define READER(KIND, name) [RATE_##KIND] = read_##name,
    static enum err_code (*const readers[])(const struct json_at *, struct rate_spec *,
                                            struct err *) = {RATES(READER)};
    if (!at->value)
        return json_at_fail(at, err, "a number from 0 to 1000000 or an object");
    if (!json_at_is_object(at))
        return json_at_double(at, rate_range, &rate->constant, err);

    int kind = 0;
    TRY(job_fields_check(at, FIELDS_RATE, &kind, err));
    rate->kind = (enum rate_kind)kind;
    return readers[kind](at, rate, err);
}

/* ---- optimizers ------------------------------------------------------------------------------ */

void optimizer_spec_init(struct optimizer_spec *spec)
{
#define DEFAULT(name, type, takers, fallback, min, max, is_open) .name = (fallback),
    *spec = (struct optimizer_spec){OPTIMIZER_PARAMS(DEFAULT)};
}

enum err_code optimizer_spec_read(const struct json_at *at, struct optimizer_spec *spec,
                                  struct err *err)
{
    int kind = 0;
    TRY(job_fields_check(at, FIELDS_OPTIMIZER, &kind, err));
    spec->kind = (enum optimizer_kind)kind;
    struct json_at rate = json_at_member(at, "learning_rate");
    TRY(read_rate(&rate, &spec->learning_rate, err));
    return job_fields_read(at, FIELDS_OPTIMIZER, kind, spec, err);
}

void optimizer_spec_done(struct optimizer_spec *spec)
{
    free(spec->learning_rate.boundaries);
    free(spec->learning_rate.values);
}

const char *optimizer_name(enum optimizer_kind kind)
{
#define NAME(KIND, name, slots) [OPTIMIZER_##KIND] = #name,
    static const char *const names[] = {OPTIMIZERS(NAME)};
    return (size_t)kind < ARRAY_SIZE(names) ? names[kind] : "unknown";
}

uint32_t optimizer_slot_count(enum optimizer_kind kind)
{
#define SLOTS(KIND, name, slots) [OPTIMIZER_##KIND] = (slots),
    static const uint32_t counts[] = {OPTIMIZERS(SLOTS)};
    return (size_t)kind < ARRAY_SIZE(counts) ? counts[kind] : 0;
}
