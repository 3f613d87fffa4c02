/* SPDX-License-Identifier: Apache-2.0 */
/* data_source: the table. */
#include "common/spec/data_source.h"

#include <inttypes.h>

#include "common/formats/idx.h"

typedef enum err_code measure_fn(const struct dataset_spec *spec, const char *field,
                                 struct data_shape *ret_shape, struct err *err);

static enum err_code measure_idx(const struct dataset_spec *spec, const char *field,
                                 struct data_shape *ret_shape, struct err *err)
{
    struct idx_header images;
    struct idx_header labels;
    enum err_code code = idx_read_header(spec->images, IDX_IMAGES, &images, err);
    if (code != ERR_OK) {
        err_prefix(err, "%s.images", field);
        return code;
    }
    code = idx_read_header(spec->labels, IDX_LABELS, &labels, err);
    if (code != ERR_OK) {
        err_prefix(err, "%s.labels", field);
        return code;
    }
    if (images.count != labels.count)
        return err_set(err, ERR_INVALID,
                       "%s: %s has %" PRIu64 " images but %s has %" PRIu64 " labels", field,
                       spec->images, images.count, spec->labels, labels.count);
    if (spec->records > images.count)
        return err_set(err, ERR_INVALID,
                       "%s.records: %" PRIu64 ": want at most the %" PRIu64 " of %s", field,
                       spec->records, images.count, spec->images);
    *ret_shape = (struct data_shape){.records = spec->records ? spec->records : images.count,
                                     .channels = 1,
                                     .height = images.height,
                                     .width = images.width};
    return ERR_OK;
}

static enum err_code measure_synthetic(const struct dataset_spec *spec, const char *field,
                                       struct data_shape *ret_shape, struct err *err)
{
    if (spec->records == 0)
        return err_set(err, ERR_INVALID, "%s.records: 0: want at least 1", field);
    *ret_shape = (struct data_shape){.records = spec->records,
                                     .channels = spec->channels,
                                     .height = spec->height,
                                     .width = spec->width};
    return ERR_OK;
}

/* There is nothing to read, for as long as somebody wants. */
static enum err_code measure_none(const struct dataset_spec *spec, const char *field,
                                  struct data_shape *ret_shape, struct err *err)
{
    (void)field;
    (void)err;
    *ret_shape = (struct data_shape){.records = spec->records ? spec->records : UINT64_MAX,
                                     .channels = 1,
                                     .height = 1,
                                     .width = 1};
    return ERR_OK;
}

static measure_fn *const measures[DATA_SOURCE_COUNT] = {
    [DATA_IDX] = measure_idx,
    [DATA_SYNTHETIC] = measure_synthetic,
    [DATA_NONE] = measure_none,
};

enum err_code data_source_measure(const struct dataset_spec *spec, const char *field,
                                  struct data_shape *ret_shape, struct err *err)
{
    ASSERT(spec->source < DATA_SOURCE_COUNT && measures[spec->source]);
    return measures[spec->source](spec, field, ret_shape, err);
}
