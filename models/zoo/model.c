/* SPDX-License-Identifier: Apache-2.0 */
/* model: the table of networks, and the checks that all of them share. */
#include "models/zoo/model.h"

#include <inttypes.h>
#include <string.h>

#include "models/zoo/model_int.h"

static const struct model_row {
    const char *name;
    bool is_classifier; /* has images, classes and a loss */
    bool has_hidden;    /* reads model.hidden */
    void (*build)(struct net *net, const struct model_spec *spec);
} models[] = {
    {"softmax", true, false, model_softmax_build},
    {"mlp", true, true, model_mlp_build},
    {"lenet", true, false, model_lenet_build},
    {"noop", false, false, model_noop_build},
};

static const struct model_row *find(const char *name)
{
    for (size_t i = 0; name && i < ARRAY_SIZE(models); i++)
        if (strcmp(models[i].name, name) == 0)
            return &models[i];
    return NULL;
}

static enum err_code check(const struct model_row *row, const struct model_spec *spec,
                           uint64_t channels, uint64_t height, uint64_t width, struct err *err)
{
    if (row->is_classifier && spec->num_classes < 2)
        return err_set(err, ERR_INVALID, "model.num_classes: %u: want 2 or more",
                       spec->num_classes);
    if (row->is_classifier && (channels == 0 || height == 0 || width == 0))
        return err_set(err, ERR_INVALID,
                       "dataset: images of %" PRIu64 "x%" PRIu64 "x%" PRIu64
                       " (height, width, channels): want 1 or more of each for model.name \"%s\"",
                       height, width, channels, row->name);
    if (row->has_hidden && spec->hidden_count == 0)
        return err_set(err, ERR_INVALID, "model.hidden: []: want at least one layer");
    for (size_t i = 0; row->has_hidden && i < spec->hidden_count; i++)
        if (spec->hidden[i] == 0)
            return err_set(err, ERR_INVALID, "model.hidden[%zu]: 0: want 1 or more", i);
    return ERR_OK;
}

enum err_code model_build(const struct model_spec *spec, uint64_t channels, uint64_t height,
                          uint64_t width, struct graph **ret_graph, struct err *err)
{
    struct err local;
    err = err ? err : &local;
    const struct model_row *row = find(spec->name);
    if (!row)
        return err_set(err, ERR_INVALID, "model.name: \"%s\": want softmax, mlp, lenet or noop",
                       spec->name ? spec->name : "");
    if (check(row, spec, channels, height, width, err))
        return err->code;
    struct net net;
    net_init(&net, err);
    if (row->is_classifier)
        net_images(&net, channels, height, width);
    row->build(&net, spec);
    if (net_done(&net, ret_graph))
        return err_prefix(err,
                          "model.name: \"%s\" on images of %" PRIu64 "x%" PRIu64 "x%" PRIu64
                          " (height, width, channels)",
                          row->name, height, width, channels);
    return ERR_OK;
}
