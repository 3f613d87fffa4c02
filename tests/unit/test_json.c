/* SPDX-License-Identifier: Apache-2.0 */
#include "common/formats/json.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/nearest.h"
#include "common/formats/json_where.h"
#include "tests/harness.h"

static struct err err;

static void check_refused(const char *text, const char *want)
{
    struct json_doc *doc = NULL;
    CHECK(json_doc_parse("F", text, strlen(text), 1000, &doc, &err) == ERR_INVALID);
    CHECK(doc == NULL);
    CHECK_STR(err.text, want);
}

static struct json_doc *parse(const char *text)
{
    struct json_doc *doc = NULL;
    CHECK_OK(json_doc_parse(NULL, text, strlen(text), 1000, &doc, &err));
    return doc;
}

TEST(a_syntax_error_names_line_column_path_and_what_was_wanted)
{
    check_refused("", "F: empty: want a JSON object");
    check_refused(" \n\t", "F: empty: want a JSON object");
    check_refused("{\"a\" 1}", "F: not JSON: line 1, column 6, in a: found 1, want ':'");
    check_refused("{\"a\":\n [1 2]}",
                  "F: not JSON: line 2, column 5, in a[0]: found 2, want ',' or ']'");
    check_refused("{\"a\":{\"b\":[0,{\"c\":}]}}",
                  "F: not JSON: line 1, column 19, in a.b[1].c: found }, want a value");
    check_refused("{\"a\":1 \"b\":2}",
                  "F: not JSON: line 1, column 8, in a: found \"b\", want ',' or '}'");
    check_refused("{\"a\":1}}", "F: not JSON: line 1, column 8: found }, want nothing more");
    check_refused(
        "[1,2",
        "F: not JSON: line 1, column 5, in [1]: found the end of the text, want ',' or ']'");
    check_refused("{\"\xc3\xa4\":\"\xc3\xbc\" x}",
                  "F: not JSON: line 1, column 10, in [\"\\xc3\\xa4\"]: found x, want ',' or '}'");
    check_refused("{\"a\":\"b}",
                  "F: not JSON: line 1, column 6, in a: found \"b}, want a closing double quote");
}

TEST(habits_of_other_languages_get_a_hint)
{
    check_refused("{'a':1}",
                  "F: not JSON: line 1, column 2: found 'a', want a name in double quotes or "
                  "'}' (strings take double quotes)");
    check_refused("{\"a\":True}",
                  "F: not JSON: line 1, column 6, in a: found True, want a value (write true)");
    check_refused(
        "{\"a\":NaN}",
        "F: not JSON: line 1, column 6, in a: found NaN, want a value (every number is finite)");
    check_refused(
        "[1,]", "F: not JSON: line 1, column 4, in [1]: found ], want a value (no comma after the "
                "last one)");
    check_refused(
        "// x\n{}",
        "F: not JSON: line 1, column 1: found //, want a JSON object (there are no comments)");
    check_refused(
        "\xef\xbb\xbf{}",
        "F: not JSON: line 1, column 1: found \\xef\\xbb\\xbf, want a JSON object (save the "
        "file without a byte order mark)");
}

TEST(duplicate_names_are_refused_with_their_place)
{
    check_refused("{\"t\":{\"a\":1,\"a\":1}}",
                  "F: line 1, column 13, in t: the name \"a\" a second time in one object");
    /* the same name written in two ways */
    check_refused("{\"a\":1,\"\\u0061\":1}",
                  "F: line 1, column 8: the name \"\\u0061\" a second time in one object");
}

TEST(strings_must_be_utf8_without_nul)
{
    check_refused("{\"a\":\"\xff\"}", "F: line 1, column 6, in a: \"\\xff\": want UTF-8");
    check_refused("{\"a\":\"\\u0000\"}",
                  "F: line 1, column 6, in a: \"\\u0000\": want a string without \\u0000");
    check_refused("{\"\\u0000\":1}",
                  "F: line 1, column 2: \"\\u0000\": want a string without \\u0000");
    check_refused(
        "{\"a\":\"\\ud800\"}",
        "F: not JSON: line 1, column 6, in a: found \"\\ud800\": invalid Unicode '\\uD800'");
    check_refused("{\"a\":\"\n\"}",
                  "F: not JSON: line 1, column 6, in a: found \"\\x0a\": unexpected newline");
    const char nul[] = "{\"a\":\0}";
    struct json_doc *doc = NULL;
    CHECK(json_doc_parse(NULL, nul, sizeof(nul) - 1, 100, &doc, &err) == ERR_INVALID);
    CHECK_STR(err.text, "not JSON: line 1, column 6: found a NUL byte");
}

TEST(numbers_beyond_64_bits_are_refused_with_their_path)
{
    check_refused("{\"a\":[99999999999999999999]}",
                  "F: line 1, column 7, in a[0]: 99999999999999999999: want a number from "
                  "-9223372036854775808 to 9223372036854775807");
    check_refused("{\"a\":-99999999999999999999}",
                  "F: line 1, column 6, in a: -99999999999999999999: want a number from "
                  "-9223372036854775808 to 9223372036854775807");
    check_refused("{\"a\":1e999}",
                  "F: line 1, column 6, in a: 1e999: want a number from -1.8e308 to 1.8e308");
}

TEST(a_text_over_the_limit_or_too_deep_is_refused)
{
    struct json_doc *doc = NULL;
    CHECK(json_doc_parse("F", "{}  ", 4, 3, &doc, &err) == ERR_INVALID);
    CHECK_STR(err.text, "F: 4 bytes: want at most 3");
    char *deep = malloc(200000);
    memset(deep, '[', 200000);
    CHECK(json_doc_parse("F", deep, 200000, 200000, &doc, &err) == ERR_INVALID);
    CHECK(strstr(err.text, "want at most 2048 levels of nesting"));
    free(deep);
}

TEST(a_whole_number_is_one_that_is_written_as_one)
{
    AUTO(json_doc)
    doc = parse("{\"whole\":3,\"point\":3.0,\"exp\":3e0,\"neg\":-1,\"big\":9223372036854775807,"
                "\"text\":\"3\",\"no\":null}");
    struct json_at root = json_doc_root(doc);
    struct json_at at = json_at_member(&root, "whole");
    uint64_t value = 77;
    CHECK_OK(json_at_u64(&at, 1, 3, &value, &err));
    CHECK_U64(value, 3);
    CHECK(json_at_u64(&at, 4, 9, &value, &err) == ERR_INVALID);
    CHECK_STR(err.text, "whole: 3: want a whole number from 4 to 9");
    CHECK(json_at_u64(&at, 0, 2, &value, &err) == ERR_INVALID);
    at = json_at_member(&root, "point");
    CHECK(json_at_u64(&at, 1, 3, &value, &err) == ERR_INVALID);
    CHECK_STR(err.text, "point: 3.0: want a whole number from 1 to 3, without point or exponent");
    at = json_at_member(&root, "exp");
    CHECK(json_at_u64(&at, 1, 3, &value, &err) == ERR_INVALID);
    at = json_at_member(&root, "neg");
    CHECK(json_at_u64(&at, 0, UINT64_MAX, &value, &err) == ERR_INVALID);
    CHECK_STR(err.text, "neg: -1: want a whole number from 0 to 18446744073709551615");
    at = json_at_member(&root, "text");
    CHECK(json_at_u64(&at, 0, 9, &value, &err) == ERR_INVALID);
    CHECK_STR(err.text, "text: \"3\": want a whole number from 0 to 9");
    at = json_at_member(&root, "no");
    CHECK(json_at_u64(&at, 0, 9, &value, &err) == ERR_INVALID);
    CHECK_STR(err.text, "no: null: want a whole number from 0 to 9");
    at = json_at_member(&root, "nowhere");
    CHECK(json_at_u64(&at, 0, 9, &value, &err) == ERR_INVALID);
    CHECK_STR(err.text, "nowhere: missing: want a whole number from 0 to 9");
    CHECK_U64(value, 3); /* untouched by the failures */
    at = json_at_member(&root, "big");
    CHECK_OK(json_at_u64(&at, 0, INT64_MAX, &value, &err));
    CHECK_U64(value, INT64_MAX);
}

TEST(ranges_of_numbers_say_which_bounds_belong)
{
    AUTO(json_doc) doc = parse("{\"one\":1,\"zero\":0.0}");
    struct json_at root = json_doc_root(doc);
    struct json_at one = json_at_member(&root, "one");
    struct json_at zero = json_at_member(&root, "zero");
    double value = 7;
    CHECK_OK(json_at_double(&one, (struct json_range){.min = 0, .max = 1}, &value, &err));
    CHECK(value == 1);
    CHECK(json_at_double(&one, (struct json_range){.max = 1, .is_max_open = true}, &value, &err) ==
          ERR_INVALID);
    CHECK_STR(err.text, "one: 1: want a number from 0 to less than 1");
    CHECK(json_at_double(&zero, (struct json_range){.max = 1, .is_min_open = true}, &value, &err) ==
          ERR_INVALID);
    CHECK_STR(err.text, "zero: 0.0: want a number greater than 0 and at most 1");
    CHECK(json_at_double(&root, (struct json_range){.max = 1}, &value, &err) == ERR_INVALID);
    CHECK_STR(err.text, "top level: {\"one\":1,\"zero\":0.0}: want a number from 0 to 1");
    CHECK(value == 1);
}

TEST(an_unknown_name_is_refused_with_the_nearest_known_one)
{
    static const struct json_key keys[] = {
        {"batch_size", 3}, {"height", 2}, {"images", 1}, {"labels", 1}, {"source", 3}};
    static const char *const of[] = {"source idx", "source synthetic"};
    AUTO(json_doc)
    doc = parse("{\"a\":{\"batchsize\":1},\"b\":{\"zzz\":1},\"c\":{\"height\":2},\"d\":{\"images\":"
                "\"\",\"source\":1},\"e\":[]}");
    struct json_at root = json_doc_root(doc);
    struct json_at at = json_at_member(&root, "a");
    CHECK(json_at_keys(&at, keys, ARRAY_SIZE(keys), 1, of, &err) == ERR_INVALID);
    CHECK_STR(err.text, "a.batchsize: 1: unknown name; did you mean \"batch_size\"?");
    at = json_at_member(&root, "b");
    CHECK(json_at_keys(&at, keys, ARRAY_SIZE(keys), 2, of, &err) == ERR_INVALID);
    CHECK_STR(err.text, "b.zzz: 1: unknown name; known: batch_size, height, source");
    at = json_at_member(&root, "c");
    CHECK(json_at_keys(&at, keys, ARRAY_SIZE(keys), 1, of, &err) == ERR_INVALID);
    CHECK_STR(err.text,
              "c.height: 2: does not belong to source idx; only source synthetic takes it");
    CHECK_OK(json_at_keys(&at, keys, ARRAY_SIZE(keys), 2, of, &err));
    at = json_at_member(&root, "d");
    CHECK_OK(json_at_keys(&at, keys, ARRAY_SIZE(keys), 1, of, &err));
    at = json_at_member(&root, "e");
    CHECK(json_at_keys(&at, keys, ARRAY_SIZE(keys), 1, of, &err) == ERR_INVALID);
    CHECK_STR(err.text, "e: []: want an object");
}

TEST(words_that_are_known_but_not_there_yet_say_what_is)
{
    static const struct json_word words[] = {{"sgd", 0}, {"adam", 4}, {"lamb", -1}};
    AUTO(json_doc) doc = parse("[\"adam\",\"lamb\",\"x\",4]");
    struct json_at root = json_doc_root(doc);
    int value = 0;
    struct json_at at = json_at_element(&root, 0);
    CHECK_OK(json_at_word(&at, words, 3, &value, &err));
    CHECK(value == 4);
    at = json_at_element(&root, 1);
    CHECK(json_at_word(&at, words, 3, &value, &err) == ERR_INVALID);
    CHECK_STR(err.text, "[1]: \"lamb\": not available yet; want sgd or adam");
    at = json_at_element(&root, 2);
    CHECK(json_at_word(&at, words, 3, &value, &err) == ERR_INVALID);
    CHECK_STR(err.text, "[2]: \"x\": want sgd or adam");
    at = json_at_element(&root, 3);
    CHECK(json_at_word(&at, words, 3, &value, &err) == ERR_INVALID);
    CHECK_STR(err.text, "[3]: 4: want sgd or adam");
}

TEST(strings_booleans_and_arrays_are_checked_for_type_and_size)
{
    AUTO(json_doc) doc = parse("{\"s\":\"abc\",\"b\":true,\"a\":[1,2]}");
    struct json_at root = json_doc_root(doc);
    struct json_at s = json_at_member(&root, "s");
    struct json_at b = json_at_member(&root, "b");
    struct json_at a = json_at_member(&root, "a");
    AUTO_MEM char *string = NULL;
    CHECK_OK(json_at_string(&s, 1, 3, &string, &err));
    CHECK_STR(string, "abc");
    CHECK(json_at_string(&s, 1, 2, &string, &err) == ERR_INVALID);
    CHECK_STR(err.text, "s: \"abc\": want a string of 1 to 2 bytes");
    CHECK(json_at_string(&b, 1, 2, &string, &err) == ERR_INVALID);
    bool flag = false;
    CHECK_OK(json_at_bool(&b, &flag, &err));
    CHECK(flag);
    CHECK(json_at_bool(&s, &flag, &err) == ERR_INVALID);
    CHECK_STR(err.text, "s: \"abc\": want true or false");
    CHECK_OK(json_at_array(&a, 1, 2, "sizes", &err));
    CHECK(json_at_array(&a, 3, 4, "sizes", &err) == ERR_INVALID);
    CHECK_STR(err.text, "a: [1,2]: want an array of 3 to 4 sizes");
    CHECK(json_at_array(&s, 1, 2, "sizes", &err) == ERR_INVALID);
    CHECK_U64(json_at_count(&a), 2);
    CHECK_U64(json_at_count(&root), 3);
    CHECK_U64(json_at_count(&s), 0);
}

TEST(members_come_in_the_order_of_the_text)
{
    AUTO(json_doc) doc = parse("{\"z\":1,\"a\":2,\"m\":3}");
    struct json_at root = json_doc_root(doc);
    struct json_at member;
    void *cursor = NULL;
    char order[8] = "";
    for (size_t i = 0; json_at_next(&root, &cursor, &member); i++) {
        CHECK(i < sizeof(order) - 1);
        order[i] = member.key[0];
    }
    CHECK_STR(order, "zam");
}

TEST(long_values_and_paths_are_cut_not_overflowed)
{
    char key[301] = "";
    char value[301] = "";
    char text[900];
    memset(key, 'k', 300);
    memset(value, 'v', 300);
    snprintf(text, sizeof(text), "{\"%s\":\"%s\"}", key, value);
    AUTO(json_doc) doc = parse(text);
    struct json_at root = json_doc_root(doc);
    struct json_at member;
    void *cursor = NULL;
    CHECK(json_at_next(&root, &cursor, &member));
    CHECK(json_at_fail(&member, &err, "less") == ERR_INVALID);
    CHECK(strlen(err.text) < 200);
    CHECK(strstr(err.text, "kkk...: \"vvv"));
    CHECK(strstr(err.text, "vvv...: want less"));
}

static const char *near(const char *word)
{
    static const char *const names[] = {"batch_size", "epochs", "momentum",
                                        "max_steps",  "seed",   "beta1"};
    struct nearest nearest;
    nearest_init(&nearest, word);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        nearest_offer(&nearest, names[i]);
    return nearest.best ? nearest.best : "";
}

TEST(nearest_finds_typing_mistakes_and_nothing_else)
{
    CHECK_STR(near("batchSize"), "batch_size");
    CHECK_STR(near("batch-size"), "batch_size");
    CHECK_STR(near("epoch"), "epochs");
    CHECK_STR(near("eopchs"), "epochs");
    CHECK_STR(near("MOMENTUM"), "momentum");
    CHECK_STR(near("steps_max"), "");
    CHECK_STR(near("sed"), "seed");
    CHECK_STR(near("beta"), "beta1");
    CHECK_STR(near(""), "");
    CHECK_STR(near("q"), "");
    CHECK_STR(near("completely_different"), "");
    char longest[200];
    memset(longest, 'b', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    CHECK_STR(near(longest), "");
}
