/* SPDX-License-Identifier: Apache-2.0 */
/* Batches are a pure function of data set and record numbers, whatever the source. */
#include "workerd/input/input.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/spec/data_order.h"
#include "tests/harness.h"

#define FASHION "/usr/share/datasets/fashion-mnist/"

static bool is_same(const void *a, const void *b, size_t bytes)
{
    return memcmp(a, b, bytes) == 0;
}

static struct dataset_spec synthetic_spec(uint64_t records)
{
    return (struct dataset_spec){.source = DATA_SYNTHETIC,
                                 .records = records,
                                 .batch_size = 8,
                                 .height = 9,
                                 .width = 11,
                                 .channels = 2,
                                 .num_classes = 4};
}

static char *write_file(const char *name, const uint8_t *bytes, size_t size)
{
    char *path = base_asprintf("%s/%s", test_dir(), name);
    FILE *fp = fopen(path, "wb");
    CHECK(fp != NULL && fwrite(bytes, 1, size, fp) == size && fclose(fp) == 0);
    return path;
}

/* Three images of 2 x 2 and their labels 0, 1, 2. */
static struct dataset_spec small_idx_spec(uint8_t label_count, uint8_t third_label)
{
    uint8_t images[16 + 12] = {0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 2};
    for (uint8_t i = 0; i < 12; i++)
        images[16 + i] = (uint8_t)(20 * i);
    uint8_t labels[8 + 4] = {0, 0, 8, 1, 0, 0, 0, label_count, 0, 1, third_label, 0};
    return (struct dataset_spec){.source = DATA_IDX,
                                 .images = write_file("images", images, sizeof(images)),
                                 .labels = write_file("labels", labels, 8 + (size_t)label_count),
                                 .batch_size = 2};
}

static void free_spec(struct dataset_spec *spec)
{
    free(spec->images);
    free(spec->labels);
}

TEST(synthetic_records_depend_on_seed_stream_and_number_only)
{
    struct err err;
    struct dataset_spec spec = synthetic_spec(100);
    enum { ELEMENTS = 9 * 11 * 2, N = 8 };
    struct input *a = NULL, *b = NULL, *other_seed = NULL, *eval = NULL;
    CHECK_OK(input_open(&spec, 4, 7, 0, &a, &err));
    CHECK_OK(input_open(&spec, 4, 7, 0, &b, &err));
    CHECK_OK(input_open(&spec, 4, 8, 0, &other_seed, &err));
    CHECK_OK(input_open(&spec, 4, 7, 1, &eval, &err));
    CHECK_U64(input_shape_of(a)->example_elements, ELEMENTS);
    uint64_t forward[N], backward[N];
    for (uint64_t i = 0; i < N; i++) {
        forward[i] = i * 11;
        backward[N - 1 - i] = i * 11;
    }
    static float x[N * ELEMENTS], y[N * ELEMENTS];
    int32_t lx[N], ly[N];
    CHECK_OK(input_fill(a, forward, N, x, lx, &err));
    CHECK_OK(input_fill(b, backward, N, y, ly, &err));
    for (size_t i = 0; i < N; i++) {
        CHECK(lx[i] == ly[N - 1 - i] && lx[i] >= 0 && lx[i] < 4);
        CHECK(is_same(x + i * ELEMENTS, y + (N - 1 - i) * ELEMENTS, ELEMENTS * sizeof(float)));
    }
    for (int i = 0; i < N * ELEMENTS; i++)
        CHECK(x[i] >= 0.0f && x[i] <= 1.0f);
    CHECK_OK(input_fill(other_seed, forward, N, y, ly, &err));
    CHECK(!is_same(x, y, sizeof(x)));
    CHECK_OK(input_fill(eval, forward, N, y, ly, &err));
    CHECK(!is_same(x, y, sizeof(x)));
    input_unref(a);
    input_unref(b);
    input_unref(other_seed);
    input_unref(eval);
}

/* Means per class of training records classify evaluation records: the classes are there to be
 * learned. */
TEST(synthetic_classes_can_be_learned_and_carry_over_to_evaluation)
{
    struct err err;
    struct dataset_spec spec = synthetic_spec(400);
    enum { ELEMENTS = 9 * 11 * 2, CLASSES = 4 };
    struct input *train = NULL, *eval = NULL;
    CHECK_OK(input_open(&spec, CLASSES, 7, 0, &train, &err));
    CHECK_OK(input_open(&spec, CLASSES, 7, 1, &eval, &err));
    static float mean[CLASSES][ELEMENTS], x[ELEMENTS];
    int count[CLASSES] = {0};
    int32_t label;
    for (uint64_t r = 0; r < 400; r++) {
        CHECK_OK(input_fill(train, &r, 1, x, &label, &err));
        count[label]++;
        for (int p = 0; p < ELEMENTS; p++)
            mean[label][p] += x[p];
    }
    int right = 0;
    for (uint64_t r = 0; r < 400; r++) {
        CHECK_OK(input_fill(eval, &r, 1, x, &label, &err));
        int best = -1;
        double best_distance = 1e30;
        for (int c = 0; c < CLASSES; c++) {
            CHECK(count[c] > 50);
            double distance = 0;
            for (int p = 0; p < ELEMENTS; p++)
                distance += pow(x[p] - mean[c][p] / (float)count[c], 2);
            if (distance < best_distance) {
                best_distance = distance;
                best = c;
            }
        }
        right += best == label;
    }
    CHECK(right >= 396);
    input_unref(train);
    input_unref(eval);
}

TEST(idx_records_come_scaled_and_in_the_order_asked_for)
{
    struct err err;
    struct dataset_spec spec = small_idx_spec(3, 2);
    struct input *input = NULL;
    CHECK_OK(input_open(&spec, 3, 0, 0, &input, &err));
    const struct input_shape *shape = input_shape_of(input);
    CHECK(shape->records == 3 && shape->channels == 1 && shape->height == 2 && shape->width == 2);
    uint64_t records[3] = {2, 0, 2};
    float images[12];
    int32_t labels[3];
    CHECK_OK(input_fill(input, records, 3, images, labels, &err));
    CHECK(labels[0] == 2 && labels[1] == 0 && labels[2] == 2);
    CHECK(images[0] == 160.0f / 255.0f && images[4] == 0.0f && images[7] == 60.0f / 255.0f);
    CHECK(images[11] == 220.0f / 255.0f);
    input_unref(input);
    free_spec(&spec);
}

TEST(a_label_without_a_class_is_named_by_file_and_record)
{
    struct err err;
    struct dataset_spec spec = small_idx_spec(3, 9);
    struct input *input = NULL;
    CHECK_OK(input_open(&spec, 3, 0, 0, &input, &err));
    uint64_t records[3] = {0, 1, 2};
    float images[12];
    int32_t labels[3];
    CHECK_OK(input_fill(input, records, 2, images, labels, &err));
    CHECK(input_fill(input, records, 3, images, labels, &err) == ERR_CORRUPT);
    CHECK(strstr(err.text, spec.labels) && strstr(err.text, "record 2") &&
          strstr(err.text, "label 9, want less than 3"));
    input_unref(input);
    free_spec(&spec);
}

TEST(files_that_disagree_are_refused_when_the_job_opens)
{
    struct err err;
    struct dataset_spec spec = small_idx_spec(4, 2);
    struct input *input = NULL;
    CHECK(input_open(&spec, 3, 0, 0, &input, &err) == ERR_INVALID);
    CHECK(strstr(err.text, "has 3 images but") && strstr(err.text, "has 4 labels"));
    free_spec(&spec);
    spec = small_idx_spec(3, 2);
    spec.records = 4;
    CHECK(input_open(&spec, 3, 0, 0, &input, &err) == ERR_INVALID);
    CHECK(strstr(err.text, "dataset.records: 4: want at most the 3 of"));
    spec.records = 2;
    CHECK_OK(input_open(&spec, 3, 0, 0, &input, &err));
    CHECK_U64(input_shape_of(input)->records, 2);
    uint64_t beyond = 2;
    float images[4];
    int32_t label;
    CHECK(input_fill(input, &beyond, 1, images, &label, &err) == ERR_INVALID);
    input_unref(input);
    free_spec(&spec);
}

static void *load_thread(void *arg)
{
    struct err err;
    return input_load(arg, &err) == ERR_OK ? NULL : arg;
}

TEST(many_threads_load_a_data_set_once_and_a_failure_stays)
{
    struct err err;
    struct dataset_spec spec = small_idx_spec(3, 2);
    struct input *input = NULL;
    CHECK_OK(input_open(&spec, 3, 0, 0, &input, &err));
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, load_thread, input) == 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        CHECK(!failed);
    }
    input_unref(input_ref(input));
    input_unref(input);

    CHECK_OK(input_open(&spec, 3, 0, 0, &input, &err));
    CHECK(remove(spec.images) == 0);
    CHECK(input_load(input, &err) == ERR_NOT_FOUND);
    CHECK(strstr(err.text, spec.images));
    struct err again = {0};
    uint64_t record = 0;
    float images[4];
    int32_t label;
    CHECK(input_fill(input, &record, 1, images, &label, &again) == ERR_NOT_FOUND);
    CHECK_STR(again.text, err.text);
    input_unref(input);
    free_spec(&spec);
}

TEST(a_job_without_data_has_batches_of_label_zero)
{
    struct err err;
    struct dataset_spec spec = {.source = DATA_NONE, .batch_size = 2};
    struct input *input = NULL;
    CHECK_OK(input_open(&spec, 10, 0, 0, &input, &err));
    CHECK_U64(input_shape_of(input)->example_elements, 0);
    uint64_t records[2] = {5, 6};
    int32_t labels[2] = {9, 9};
    CHECK_OK(input_fill(input, records, 2, NULL, labels, &err));
    CHECK(labels[0] == 0 && labels[1] == 0);
    input_unref(input);
}

/* The numbers were computed from the files with Python gzip: sums of bytes, plain and weighted. */
TEST(a_batch_of_fashion_mnist_has_its_known_checksum)
{
    struct err err;
    struct dataset_spec spec = {.source = DATA_IDX,
                                .images = (char *)FASHION "train-images-idx3-ubyte.gz",
                                .labels = (char *)FASHION "train-labels-idx1-ubyte.gz",
                                .batch_size = 64};
    struct input *input = NULL;
    enum err_code code = input_open(&spec, 10, 0, 0, &input, &err);
    if (code == ERR_NOT_FOUND)
        test_skip("package dataset-fashion-mnist is not installed");
    CHECK_OK(code);
    CHECK_U64(input_shape_of(input)->records, 60000);
    static float images[64 * 784];
    int32_t labels[64];
    uint64_t records[64];
    struct data_order order;
    data_order_init(&order, 1, 60000, 64, 0);
    CHECK_U64(data_order_batch(&order, 0, 937, records),
              32); /* the short last batch, in file order */
    CHECK_U64(records[0], 59968);
    CHECK_OK(input_fill(input, records, 32, images, labels, &err));
    uint64_t pixel_sum = 0;
    uint64_t weighted = 0;
    uint64_t label_sum = 0;
    for (uint64_t i = 0; i < 32ULL * 784; i++) {
        uint64_t byte = (uint64_t)lrintf(images[i] * 255.0f);
        pixel_sum += byte;
        weighted += byte * (i % 1009);
    }
    for (uint64_t i = 0; i < 32; i++)
        label_sum += (uint64_t)labels[i] * (i + 1);
    CHECK_U64(pixel_sum, 2076757);
    CHECK_U64(weighted, 1026164023);
    CHECK_U64(label_sum, 1986);
    input_unref(input);
}
