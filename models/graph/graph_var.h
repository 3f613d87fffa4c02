/* SPDX-License-Identifier: Apache-2.0 */
/* graph_var: the variables of a graph, for those who need nothing else of it: who places them, who
 * initialises them, who lists them.
 *
 * Owns    what is returned belongs to the graph. Thread: immutable once built, so any.
 * Shapes  conv kernels O,I,H,W; affine weights in,out; all f32, row-major.
 */
#ifndef MODELS_GRAPH_GRAPH_VAR_H
#define MODELS_GRAPH_GRAPH_VAR_H

#include "common/base/base.h"
#include "common/base/limits.h"

struct graph; /* graph.h */

enum init_kind { /* the numbers of proto InitKind */
                 INIT_KIND_ZEROS = 0,
                 INIT_KIND_CONSTANT = 1,
                 INIT_KIND_TRUNCATED_NORMAL = 2,
                 INIT_KIND_NORMAL = 3,
                 INIT_KIND_UNIFORM = 4,
};

struct model_var {
    char *name;
    uint32_t rank;
    uint64_t shape[LIMIT_RANK];
    enum init_kind init;
    float init_value;
    bool is_trainable;
};

void graph_free(struct graph *graph);
DEFINE_AUTO(graph)
size_t graph_var_count(const struct graph *graph);
const struct model_var *graph_var(const struct graph *graph, size_t var_index);
uint64_t model_var_elements(const struct model_var *var);

#endif
