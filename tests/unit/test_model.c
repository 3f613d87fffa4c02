/* SPDX-License-Identifier: Apache-2.0 */
#include "models/zoo/model.h"

#include "models/graph/graph.h"
#include "tests/harness.h"

static struct graph *build(const char *name, uint64_t channels, uint64_t height, uint64_t width)
{
    struct err err = {0};
    struct graph *graph = NULL;
    uint32_t hidden[] = {128, 64};
    struct model_spec spec = {
        .name = (char *)name, .num_classes = 10, .hidden = hidden, .hidden_count = 2};
    CHECK_OK(model_build(&spec, channels, height, width, &graph, &err));
    return graph;
}

static void check_var(const struct graph *graph, size_t index, const char *name, uint32_t rank,
                      const uint64_t *shape)
{
    const struct model_var *var = graph_var(graph, index);
    CHECK_STR(var->name, name);
    CHECK_U64(var->rank, rank);
    for (uint32_t i = 0; i < rank; i++)
        CHECK_U64(var->shape[i], shape[i]);
    CHECK(var->is_trainable);
}

static uint64_t parameters(const struct graph *graph)
{
    uint64_t total = 0;
    for (size_t v = 0; v < graph_var_count(graph); v++)
        total += model_var_elements(graph_var(graph, v));
    return total;
}

TEST(lenet_has_the_variables_counted_by_hand)
{
    AUTO(graph) graph = build("lenet", 1, 28, 28);
    CHECK_U64(graph_var_count(graph), 8);
    check_var(graph, 0, "cg/conv0/conv2d/kernel", 4, (uint64_t[]){32, 1, 5, 5});
    check_var(graph, 1, "cg/conv0/biases", 1, (uint64_t[]){32});
    check_var(graph, 2, "cg/conv1/conv2d/kernel", 4, (uint64_t[]){64, 32, 5, 5});
    check_var(graph, 3, "cg/conv1/biases", 1, (uint64_t[]){64});
    check_var(graph, 4, "cg/affine0/weights", 2, (uint64_t[]){3136, 512});
    check_var(graph, 5, "cg/affine0/biases", 1, (uint64_t[]){512});
    check_var(graph, 6, "cg/affine1/weights", 2, (uint64_t[]){512, 10});
    check_var(graph, 7, "cg/affine1/biases", 1, (uint64_t[]){10});
    CHECK_U64(parameters(graph),
              5 * 5 * 1 * 32 + 32 + 5 * 5 * 32 * 64 + 64 + 3136 * 512 + 512 + 512 * 10 + 10);
    CHECK_U64(parameters(graph), 1663370);
}

/* The published size of tf_cnn_benchmarks' lenet: 28x28x3, 1001 classes. */
TEST(lenet_at_imagenet_classes_has_the_published_count)
{
    struct err err = {0};
    AUTO(graph) graph = NULL;
    struct model_spec spec = {.name = (char *)"lenet", .num_classes = 1001};
    CHECK_OK(model_build(&spec, 3, 28, 28, &graph, &err));
    CHECK_U64(parameters(graph), 2173353);
}

TEST(softmax_and_mlp_have_the_variables_counted_by_hand)
{
    AUTO(graph) softmax = build("softmax", 1, 28, 28);
    CHECK_U64(graph_var_count(softmax), 2);
    check_var(softmax, 0, "cg/affine0/weights", 2, (uint64_t[]){784, 10});
    check_var(softmax, 1, "cg/affine0/biases", 1, (uint64_t[]){10});
    AUTO(graph) mlp = build("mlp", 3, 8, 4);
    CHECK_U64(graph_var_count(mlp), 6);
    check_var(mlp, 0, "cg/affine0/weights", 2, (uint64_t[]){96, 128});
    check_var(mlp, 2, "cg/affine1/weights", 2, (uint64_t[]){128, 64});
    check_var(mlp, 4, "cg/affine2/weights", 2, (uint64_t[]){64, 10});
}

TEST(initial_values_follow_the_fan_in)
{
    AUTO(graph) graph = build("lenet", 1, 28, 28);
    const struct model_var *kernel = graph_var(graph, 2);
    CHECK(kernel->init == INIT_KIND_TRUNCATED_NORMAL);
    CHECK_NEAR(kernel->init_value, sqrt(1.0 / 800) / 0.87962566, 1e-7);
    CHECK(graph_var(graph, 3)->init == INIT_KIND_ZEROS);
    CHECK_NEAR(graph_var(graph, 4)->init_value, sqrt(2.0 / 3136), 1e-7);
    CHECK_NEAR(graph_var(graph, 6)->init_value, sqrt(1.0 / 512), 1e-7);
}

TEST(noop_has_nothing)
{
    struct err err = {0};
    AUTO(graph) graph = NULL;
    struct model_spec spec = {.name = (char *)"noop"};
    CHECK_OK(model_build(&spec, 0, 0, 0, &graph, &err));
    CHECK_U64(graph_var_count(graph), 0);
    CHECK_U64(graph->node_count, 0);
}

TEST(what_cannot_be_built_is_refused_by_the_name_of_the_field)
{
    static const struct {
        const char *name;
        uint32_t classes;
        uint32_t hidden;
        uint64_t channels, height, width;
        const char *want;
    } cases[] = {
        {"lenett", 10, 1, 1, 28, 28, "model.name: \"lenett\": want softmax, mlp, lenet or noop"},
        {"lenet", 1, 1, 1, 28, 28, "model.num_classes: 1: want 2 or more"},
        {"softmax", 0, 1, 1, 28, 28, "model.num_classes: 0: want 2 or more"},
        {"mlp", 10, 0, 1, 28, 28, "model.hidden[1]: 0: want 1 or more"},
        {"softmax", 10, 1, 1, 0, 28,
         "dataset: images of 0x28x1 (height, width, channels): want 1 or more of each for "
         "model.name \"softmax\""},
        {"lenet", 10, 1, 1, 28, 3,
         "model.name: \"lenet\" on images of 28x3x1 (height, width, channels): node mpool1 "
         "(MaxPool): input of shape N,64,14,1, padded by 0 and 0, is smaller than the window of 2"},
        {"softmax", 10, 1, 1ull << 21, 1ull << 20, 1,
         "model.name: \"softmax\" on images of 1048576x1x2097152 (height, width, channels): input "
         "images: shape N,2097152,1048576,1 has over 1099511627776 elements an example"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = {0};
        struct graph *graph = NULL;
        uint32_t hidden[] = {8, cases[i].hidden};
        struct model_spec spec = {.name = (char *)cases[i].name,
                                  .num_classes = cases[i].classes,
                                  .hidden = hidden,
                                  .hidden_count = 2};
        CHECK(model_build(&spec, cases[i].channels, cases[i].height, cases[i].width, &graph,
                          &err) == ERR_INVALID);
        CHECK_STR(err.text, cases[i].want);
        CHECK(!graph);
        CHECK(model_build(&spec, cases[i].channels, cases[i].height, cases[i].width, &graph,
                          NULL) == ERR_INVALID);
    }
}
