/*
 * test_sentencepiece.c: SentencePiece tokenizers against the reference's ids, the files beside them, damaged models; and
 * decoding of ids that no text has, of both kinds of tokenizer.
 */
#define _GNU_SOURCE				/* nftw */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <string.h>

#include "check_tokenizer.h"
#include "model_files.h"
#include "sentencepiece_file.h"
#include "sentencepiece_shim.h"
#include "tokenizer.h"
#include "tokenizer_parts.h"

#define VECTORS "tests/vectors/sentencepiece/"
#define MODEL "tokenizer.model"

/* --- helpers ------------------------------------------------------------------------------------------------------ */

/* A directory with a reference model as tokenizer.model, and `extra` serialized bytes behind it. */
static const char *
model_directory(const char *name, const char *extra, size_t extra_length)
{
	const char *directory = test_directory(name);
	char		file[64];
	size_t		length;
	char	   *bytes;

	snprintf(file, sizeof file, "%s.model", name);
	bytes = read_whole(VECTORS, file, &length);
	bytes = realloc(bytes, length + extra_length + 1);
	assert_non_null(bytes);
	if (extra_length > 0)
		memcpy(bytes + length, extra, extra_length);
	write_file(directory, MODEL, bytes, length + extra_length);
	free(bytes);
	return directory;
}

static HymtTokenizer *
open_directory(const char *directory)
{
	HymtTokenizer *tokenizer;
	HymtError	error;

	if (!hymt_tokenizer_open_model(&tokenizer, directory, &error))
		fail_msg("%s", error.message);
	return tokenizer;
}

static void
expect_failure(const char *label, const char *directory, HymtFailure failure, const char *words)
{
	HymtTokenizer *tokenizer;
	HymtError	error = {HYMT_FAILURE_NONE, ""};

	if (hymt_tokenizer_open_model(&tokenizer, directory, &error) || tokenizer != NULL)
		fail_msg("%s: opened", label);
	if (error.failure != failure || strstr(error.message, words) == NULL)
		fail_msg("%s: %d, %s", label, error.failure, error.message);
}

/* A serialized piece. Returns its length. */
static size_t
serialize_piece(char *to, const char *spelling, int type)
{
	size_t		length = strlen(spelling);

	to[0] = 0x0A;
	to[1] = (char) (length + 9);
	to[2] = 0x0A;
	to[3] = (char) length;
	memcpy(to + 4, spelling, length);
	memcpy(to + 4 + length, "\x15\x00\x00\x00\x00\x18", 6);
	to[10 + length] = (char) type;
	return length + 11;
}

static HymtIds
encode(const HymtTokenizer *tokenizer, const char *text)
{
	HymtIds		ids = {0};
	HymtError	error;

	if (!hymt_tokenizer_encode(tokenizer, text, strlen(text), &ids, &error))
		fail_msg("%s", error.message);
	return ids;
}

static bool
has_id(const HymtIds *ids, int32_t id)
{
	for (size_t i = 0; i < ids->count; i++)
		if (ids->ids[i] == id)
			return true;
	return false;
}

/* --- the reference's vectors -------------------------------------------------------------------------------------- */

static void
test_vectors(void **state)
{
	static const char *const names[] = {"bpe_byte_fallback", "unigram_nfkc"};

	(void) state;
	for (int i = 0; i < 2; i++)
	{
		HymtTokenizer *tokenizer = open_directory(model_directory(names[i], NULL, 0));
		char		vectors[128];

		snprintf(vectors, sizeof vectors, VECTORS "%s.jsonl", names[i]);
		check_vectors(tokenizer, vectors, 700);
		assert_string_equal(hymt_tokenizer_source(tokenizer), "tokenizer.model");
		hymt_tokenizer_close(tokenizer);
	}
}

/* Ids that no text has: whatever a model may say is decoded as the library decodes it, and in valid pieces. */
static void
test_random_ids(void **state)
{
	static const char *const names[] = {"bpe_byte_fallback", "unigram_nfkc"};
	unsigned	seed = 7;

	(void) state;
	for (int which = 0; which < 3; which++)
	{
		HymtTokenizer *tokenizer = open_directory(which < 2 ? model_directory(names[which], NULL, 0) : "models/demo");
		int			size = hymt_tokenizer_size(tokenizer);

		for (int round = 0; round < 4000; round++)
		{
			/* low ids are the control, unknown and byte pieces, and for the other kind of tokenizer single bytes */
			int			range = round % 3 == 0 ? size : 300;
			int32_t		ids[12];
			size_t		count = 1 + (size_t) rand_r(&seed) % 12;

			/* but not the control pieces, which are taken out before anything is decoded */
			for (size_t i = 0; i < count; i++)
				do
					ids[i] = (int32_t) (rand_r(&seed) % (unsigned) range);
				while (which < 2 && hymt_tokenizer_is_special(tokenizer, ids[i]));
			check_stream(tokenizer, ids, count);
			if (which < 2)
			{
				char		message[HYMT_SPM_MESSAGE];
				char	   *text;
				size_t		length;

				assert_int_equal(hymt_spm_decode(hymt_sentencepiece_model(tokenizer), ids, count, &text, &length, message),
								 HYMT_SPM_DONE);
				assert_decodes(tokenizer, ids, count, text, length);
				free(text);
			}
		}
		hymt_tokenizer_close(tokenizer);
	}
}

/* --- the files beside the model ----------------------------------------------------------------------------------- */

static void
test_alone(void **state)
{
	HymtTokenizer *tokenizer = open_directory(model_directory("bpe_byte_fallback", NULL, 0));
	HymtIds		ids = encode(tokenizer, "<s>a</s><unk><0x0A>");
	int			vocabulary;
	int			merges;
	int			added;

	(void) state;
	assert_int_equal(hymt_tokenizer_size(tokenizer), 2000);
	hymt_tokenizer_counts(tokenizer, &vocabulary, &merges, &added);
	assert_int_equal(vocabulary, 2000);
	assert_int_equal(added, 0);
	assert_int_equal(hymt_tokenizer_bos(tokenizer), 1);
	assert_true(hymt_tokenizer_is_special(tokenizer, 1) && hymt_tokenizer_is_special(tokenizer, 2));
	assert_false(hymt_tokenizer_is_special(tokenizer, 300) || hymt_tokenizer_is_special(tokenizer, -1) ||
				 hymt_tokenizer_is_special(tokenizer, 2000));
	assert_int_equal(hymt_tokenizer_added_id(tokenizer, "</s>"), 2);
	assert_int_equal(hymt_tokenizer_added_id(tokenizer, "a"), -1);
	/* what spells a control token, an unknown piece or a byte is text */
	assert_false(has_id(&ids, 0) || has_id(&ids, 1) || has_id(&ids, 2) || has_id(&ids, 13));
	assert_decodes(tokenizer, ids.ids, ids.count, "<s>a</s><unk><0x0A>", 19);
	hymt_ids_free(&ids);
	hymt_tokenizer_close(tokenizer);
}

static void
test_added_tokens(void **state)
{
	const char *directory = model_directory("bpe_byte_fallback", NULL, 0);
	int32_t		answer[] = {574, 2001, 574, 2000, 2005};
	HymtTokenizer *tokenizer;
	HymtIds		ids;
	size_t		length;
	char	   *spelling;

	(void) state;
	write_text(directory, "added_tokens.json", "{\"<|im_end|>\": 2000, \"<tag>\": 2001, \"</s>\": 2}");
	write_text(directory, "special_tokens_map.json", "{\"additional_special_tokens\": [\"<|im_end|>\", \"<none>\"]}");
	write_text(directory, "tokenizer_config.json",
			   "{\"add_bos_token\": true, \"bos_token\": {\"content\": \"<s>\"}, \"unk_token\": \"<unk>\", "
			   "\"added_tokens_decoder\": {\"2005\": {\"content\": \"<|x|>\", \"special\": true}, "
			   "\"1\": {\"content\": \"<s>\", \"special\": true}}}");
	tokenizer = open_directory(directory);
	assert_int_equal(hymt_tokenizer_size(tokenizer), 2006);
	assert_int_equal(hymt_tokenizer_bos(tokenizer), 1);
	assert_int_equal(hymt_tokenizer_added_id(tokenizer, "<|im_end|>"), 2000);
	assert_true(hymt_tokenizer_is_special(tokenizer, 2000));
	assert_false(hymt_tokenizer_is_special(tokenizer, 2001));
	assert_true(hymt_tokenizer_is_special(tokenizer, 2005));
	assert_int_equal(hymt_tokenizer_added_at(tokenizer, "<|im_end|>\n", &length), 2000);
	assert_int_equal(length, 10);
	assert_int_equal(hymt_tokenizer_added_at(tokenizer, "<tag>", &length), 2001);
	spelling = hymt_tokenizer_added_spelling(tokenizer, 2005);
	assert_string_equal(spelling, "<|x|>");
	free(spelling);
	/* none is found in a text; a control token leaves no trace in an answer, another one its spelling */
	ids = encode(tokenizer, "a<|im_end|><tag><|x|>");
	for (size_t i = 0; i < ids.count; i++)
		assert_true(ids.ids[i] < 2000);
	assert_decodes(tokenizer, ids.ids, ids.count, "a<|im_end|><tag><|x|>", 21);
	assert_decodes(tokenizer, answer, 5, "<tag> ", 6);
	hymt_ids_free(&ids);
	hymt_tokenizer_close(tokenizer);
}

static void
test_bos(void **state)
{
	const char *directory = model_directory("bpe_byte_fallback", NULL, 0);
	static const struct
	{
		const char *config;
		int32_t		bos;
	}			cases[] = {
		{"{}", 1},
		{"{\"add_bos_token\": false}", -1},
		{"{\"add_bos_token\": true, \"bos_token\": \"</s>\"}", 2},
		{"{\"bos_token\": {\"content\": \"<s>\"}}", 1},
		{"{\"bos_token\": null}", -1},
		{"{\"bos_token\": \"<none>\"}", -1},
	};

	(void) state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
	{
		HymtTokenizer *tokenizer;

		write_text(directory, "tokenizer_config.json", cases[i].config);
		tokenizer = open_directory(directory);
		assert_int_equal(hymt_tokenizer_bos(tokenizer), cases[i].bos);
		hymt_tokenizer_close(tokenizer);
	}
}

/* "legacy": false: the blank before a text is not put between a control token and the text behind it. */
static void
test_behind_control_tokens(void **state)
{
	const char *directory = model_directory("bpe_byte_fallback", NULL, 0);

	(void) state;
	for (int legacy = 0; legacy < 2; legacy++)
	{
		HymtTokenizer *tokenizer;
		HymtError	error;
		HymtIds		first = {0};
		HymtIds		behind = {0};

		write_text(directory, "tokenizer_config.json", legacy ? "{\"legacy\": true}" : "{\"legacy\": false}");
		tokenizer = open_directory(directory);
		assert_true(hymt_tokenizer_encode_part(tokenizer, "<p>", 3, false, 99, &first, &error));
		assert_true(hymt_tokenizer_encode_part(tokenizer, "<p>", 3, true, 99, &behind, &error));
		/* from the reference: "<p>hello</p>" begins with 574 ("▁") 63 ("<") 587 ("p") 65 (">") */
		assert_int_equal(first.count, 4);
		assert_int_equal(first.ids[0], 574);
		assert_int_equal(behind.count, legacy ? 4 : 3);
		assert_int_equal(behind.ids[0], legacy ? 574 : 63);
		hymt_ids_free(&first);
		hymt_ids_free(&behind);
		hymt_tokenizer_close(tokenizer);
	}
}

/* User-defined pieces are found in texts, but not those that are control tokens. */
static void
test_user_defined_pieces(void **state)
{
	char		extra[256];
	size_t		length = 0;
	const char *directory;
	HymtTokenizer *tokenizer;
	HymtIds		ids;

	(void) state;
	length += serialize_piece(extra + length, "[word]", HYMT_SPM_USER_DEFINED);	/* 2000 */
	length += serialize_piece(extra + length, "<|im_start|>", HYMT_SPM_USER_DEFINED);
	length += serialize_piece(extra + length, "[end]", HYMT_SPM_USER_DEFINED);
	directory = model_directory("bpe_byte_fallback", extra, length);
	write_text(directory, "tokenizer_config.json", "{\"additional_special_tokens\": [{\"content\": \"[end]\"}]}");
	tokenizer = open_directory(directory);
	ids = encode(tokenizer, "a [word]<|im_start|>[end]");
	assert_true(has_id(&ids, 2000));
	assert_false(has_id(&ids, 2001) || has_id(&ids, 2002));
	assert_true(hymt_tokenizer_is_special(tokenizer, 2001) && hymt_tokenizer_is_special(tokenizer, 2002));
	assert_false(hymt_tokenizer_is_special(tokenizer, 2000));
	assert_decodes(tokenizer, ids.ids, ids.count, "a [word]<|im_start|>[end]", 25);
	hymt_ids_free(&ids);
	hymt_tokenizer_close(tokenizer);
	/* a control token that any text would give */
	write_text(directory, "tokenizer_config.json", "{\"eos_token\": \"e\"}");
	expect_failure("ordinary control token", directory, HYMT_FAILURE_MODEL_UNSUPPORTED, "ordinary piece");
}

static void
test_broken_neighbours(void **state)
{
	static const struct
	{
		const char *file;
		const char *text;
		const char *words;
	}			cases[] = {
		{"added_tokens.json", "[]", "added_tokens.json"},
		{"added_tokens.json", "{\"<x>\": -1}", "added token"},
		{"added_tokens.json", "{\"<x>\": 4194304}", "added token"},
		{"added_tokens.json", "{\"<x>\": 1e3}", "added token"},
		{"added_tokens.json", "{\"<x>\": 1000}", "contradicts"},
		{"added_tokens.json", "{\"<x>\": 2000, \"<y>\": 2000}", "contradicts"},
		{"added_tokens.json", "{\"</s>\": 2000}", "contradicts"},
		{"added_tokens.json", "{\"\": 2000}", "added token"},
		{"tokenizer_config.json", "{\"added_tokens_decoder\": {\"x\": {\"content\": \"<x>\"}}}", "added token"},
		{"tokenizer_config.json", "{\"added_tokens_decoder\": {\"-5\": {\"content\": \"<x>\"}}}", "added token"},
		{"tokenizer_config.json", "{\"added_tokens_decoder\": {\"99999999999999999999\": {\"content\": \"<x>\"}}}",
		"added token"},
		{"tokenizer_config.json", "{\"added_tokens_decoder\": {\"2000\": {\"content\": 5}}}", "added token"},
		{"tokenizer_config.json", "{", "tokenizer_config.json"},
		{"special_tokens_map.json", "7", "special_tokens_map.json"},
	};

	(void) state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
	{
		const char *directory = model_directory("bpe_byte_fallback", NULL, 0);

		write_text(directory, cases[i].file, cases[i].text);
		expect_failure(cases[i].text, directory, HYMT_FAILURE_MODEL_BROKEN, cases[i].words);
	}
}

/* --- which file counts -------------------------------------------------------------------------------------------- */

static void
test_which_file(void **state)
{
	const char *directory = model_directory("bpe_byte_fallback", NULL, 0);
	HymtTokenizer *tokenizer;

	(void) state;
	/* Llama's tokenizer.json is of a kind that is not read, and describes the same as the tokenizer.model */
	write_text(directory, "tokenizer.json",
			   "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\\u2581\"}]},"
			   "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"a\":0},\"merges\":[]}}");
	tokenizer = open_directory(directory);
	assert_string_equal(hymt_tokenizer_source(tokenizer), "tokenizer.model");
	hymt_tokenizer_close(tokenizer);
	/* a broken one is not passed over in silence */
	write_text(directory, "tokenizer.json", "{");
	expect_failure("broken tokenizer.json", directory, HYMT_FAILURE_MODEL_BROKEN, "tokenizer.json");
	copy_file("models/demo", directory, "tokenizer.json");
	tokenizer = open_directory(directory);
	assert_string_equal(hymt_tokenizer_source(tokenizer), "tokenizer.json");
	assert_int_equal(hymt_tokenizer_bos(tokenizer), -1);
	hymt_tokenizer_close(tokenizer);
	directory = test_directory("empty");
	expect_failure("no file", directory, HYMT_FAILURE_MODEL_MISSING, "neither tokenizer.json nor tokenizer.model");
	write_text(directory, "tokenizer.json", "{\"normalizer\":{\"type\":\"Lowercase\"}}");
	expect_failure("another kind", directory, HYMT_FAILURE_MODEL_UNSUPPORTED, "Lowercase");
}

static void
test_limits(void **state)
{
	HymtTokenizer *tokenizer = open_directory(model_directory("bpe_byte_fallback", NULL, 0));
	HymtIds		ids = {0};
	HymtError	error;
	size_t		length = 64 * 1024 * 1024;
	char	   *text = malloc(length);

	(void) state;
	assert_true(hymt_tokenizer_encode_limited(tokenizer, "<p>", 3, 4, &ids, &error));
	assert_false(hymt_tokenizer_encode_limited(tokenizer, "<p>", 3, 3, &ids, &error));
	assert_int_equal(error.failure, HYMT_FAILURE_TOO_LONG);
	assert_int_equal(ids.count, 4);
	assert_false(hymt_tokenizer_encode(tokenizer, "a\xFF", 2, &ids, &error));
	assert_int_equal(error.failure, HYMT_FAILURE_BAD_TEXT);
	/* refused by its length alone */
	assert_non_null(text);
	memset(text, 'a', length);
	assert_false(hymt_tokenizer_encode_limited(tokenizer, text, length, 8192, &ids, &error));
	assert_int_equal(error.failure, HYMT_FAILURE_TOO_LONG);
	free(text);
	hymt_ids_free(&ids);
	hymt_tokenizer_close(tokenizer);
}

/* --- damaged models ----------------------------------------------------------------------------------------------- */

static void
test_other_kinds(void **state)
{
	static const struct
	{
		const char *extra;
		size_t		length;
		HymtFailure failure;
		const char *words;
	}			cases[] = {
		{"\x12\x02\x18\x03", 4, HYMT_FAILURE_MODEL_UNSUPPORTED, "unigram and BPE"},	/* words */
		{"\x12\x02\x18\x09", 4, HYMT_FAILURE_MODEL_UNSUPPORTED, "unigram and BPE"},
		{"\x12\x03\xC0\x01\x01", 5, HYMT_FAILURE_MODEL_UNSUPPORTED, "behind words"},
		{"\x1A\x02\x28\x00", 4, HYMT_FAILURE_MODEL_UNSUPPORTED, "escape"},
		{"\x2A\x03\x12\x01\x41", 5, HYMT_FAILURE_MODEL_UNSUPPORTED, "denormalizer"},
		{"\x1A\x06\x12\x04\x41\x41\x41\x41", 8, HYMT_FAILURE_MODEL_BROKEN, "character table"},
		{"\x0A\x02\x18\x07", 4, HYMT_FAILURE_MODEL_BROKEN, "unknown type"},
		{"\x0A\x03\x18\x81\x00", 5, HYMT_FAILURE_MODEL_BROKEN, "unknown type"},	/* 1 in two bytes */
		{"\x0A\x02\x18\x01", 4, HYMT_FAILURE_MODEL_BROKEN, "empty"},
		{"\x0A\x03\x0A\x01\xFF", 5, HYMT_FAILURE_MODEL_BROKEN, "UTF-8"},
		{"\x0A\x03\x0A\x01\x00", 5, HYMT_FAILURE_MODEL_BROKEN, "empty"},
		{"\x0A\x05\x0A\x01q\x18\x02", 7, HYMT_FAILURE_MODEL_BROKEN, "one unknown"},
		{"\x0A\x05\x0A\x01q\x18\x06", 7, HYMT_FAILURE_MODEL_BROKEN, "byte piece"},
		{"\x0A\x08\x0A\x01q\x15\x00\x00\x80\x7F", 10, HYMT_FAILURE_MODEL_BROKEN, "score"},
		{"\x0A\x05\x0A\x03<s>", 7, HYMT_FAILURE_MODEL_BROKEN, "spelled like"},
		{"\x0A\x7F", 2, HYMT_FAILURE_MODEL_BROKEN, "cut off"},
		{"\x08\x01", 2, HYMT_FAILURE_MODEL_BROKEN, "wrong kind"},
		{"\x0B", 1, HYMT_FAILURE_MODEL_BROKEN, "cut off"},
		{"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 11, HYMT_FAILURE_MODEL_BROKEN, "cut off"},
	};

	const char *directory;

	(void) state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		expect_failure(cases[i].words, model_directory("bpe_byte_fallback", cases[i].extra, cases[i].length),
					   cases[i].failure, cases[i].words);
	directory = test_directory("empty");
	write_text(directory, MODEL, "");
	expect_failure("empty", directory, HYMT_FAILURE_MODEL_BROKEN, "no pieces");
}

static void
expect_broken_bytes(const char *directory, const char *bytes, size_t length, const char *words)
{
	write_file(directory, MODEL, bytes, length);
	expect_failure(words, directory, HYMT_FAILURE_MODEL_BROKEN, words);
}

/* Steps of the character table that would lead the library out of its memory. */
static void
test_damaged_character_tables(void **state)
{
	const char *directory = test_directory("table");
	HymtSpmFile file = {0};
	HymtFileBytes bytes;
	HymtError	error;
	uint32_t	kept;
	char	   *copy;
	char	   *table;

	(void) state;
	bytes.data = read_whole(VECTORS, "unigram_nfkc.model", &bytes.length);
	assert_true(hymt_spm_file_read(&file, &bytes, &error));
	copy = file.bytes.data;
	table = file.charsmap.data;
	assert_true(file.normalizes);
	for (size_t at = 4; at < 4 + 4 * 100; at += 4)
	{
		uint32_t	far = UINT32_C(0x3FFFFC00);

		memcpy(&kept, table + at, 4);
		memcpy(table + at, &far, 4);
		expect_broken_bytes(directory, copy, file.bytes.length, "leads out of");
		memcpy(table + at, &kept, 4);
	}
	/* the first unit has no label, and its top bit keeps nobody from stepping on */
	memcpy(&kept, table + 4, 4);
	for (uint32_t try = 0; try < 2; try++)
	{
		const uint32_t first = UINT32_C(0x80000000) | (try == 0 ? 0 : UINT32_C(0x3FFFFC00));

		memcpy(table + 4, &first, 4);
		expect_broken_bytes(directory, copy, file.bytes.length, "leads out of");
	}
	memcpy(table + 4, &kept, 4);
	table[file.charsmap.length - 1] = 'x';
	expect_broken_bytes(directory, copy, file.bytes.length, "cut off");
	table[file.charsmap.length - 1] = '\0';
	memcpy(&kept, table, 4);
	for (uint32_t size = 0; size < 4; size++)
	{
		const uint32_t sizes[] = {0, kept + 1, kept + 1024 * 1024, UINT32_MAX - 1023};

		memcpy(table, &sizes[size], 4);
		expect_broken_bytes(directory, copy, file.bytes.length, "character table");
	}
	hymt_spm_file_free(&file);
}

static void
test_results_outside_the_texts(void **state)
{
	const char *directory = test_directory("results");
	HymtSpmFile file = {0};
	HymtFileBytes bytes;
	HymtError	error;
	uint32_t	units;
	int			found = 0;

	(void) state;
	bytes.data = read_whole(VECTORS, "unigram_nfkc.model", &bytes.length);
	assert_true(hymt_spm_file_read(&file, &bytes, &error));
	memcpy(&units, file.charsmap.data, 4);
	units /= 4;
	for (uint32_t i = 0; i < units && found < 20; i++)
	{
		char	   *at = file.charsmap.data + 4 + 4 * (size_t) i;
		uint32_t	far = UINT32_C(0x80000000) | (uint32_t) (file.charsmap.length - 4 - 4 * (size_t) units);
		uint32_t	kept;

		memcpy(&kept, at, 4);
		if (kept >> 31 == 0)
			continue;
		found++;
		memcpy(at, &far, 4);
		expect_broken_bytes(directory, file.bytes.data, file.bytes.length, "out of its texts");
		memcpy(at, &kept, 4);
	}
	assert_int_equal(found, 20);
	hymt_spm_file_free(&file);
}

/* Opens what may be damaged and uses it, if that succeeds. */
static void
try_model(const char *directory, const char *bytes, size_t length)
{
	HymtTokenizer *tokenizer;
	HymtError	error;

	write_file(directory, MODEL, bytes, length);
	if (hymt_tokenizer_open_model(&tokenizer, directory, &error))
	{
		static const char text[] = "１２３ ｱ <p>hello</p> Ä ﷺ";
		HymtIds		ids = {0};

		if (hymt_tokenizer_encode(tokenizer, text, sizeof text - 1, &ids, &error))
			check_stream(tokenizer, ids.ids, ids.count);
		hymt_ids_free(&ids);
		hymt_tokenizer_close(tokenizer);
	}
	else
		assert_true(error.failure == HYMT_FAILURE_MODEL_BROKEN || error.failure == HYMT_FAILURE_MODEL_UNSUPPORTED);
}

static void
test_damaged_models(void **state)
{
	static const char *const files[] = {"bpe_byte_fallback.model", "unigram_nfkc.model"};
	unsigned	seed = 3;

	(void) state;
	for (int which = 0; which < 2; which++)
	{
		const char *directory = test_directory("damaged");
		size_t		length;
		char	   *bytes = read_whole(VECTORS, files[which], &length);

		for (size_t cut = 0; cut < 60; cut++)
			try_model(directory, bytes, length * cut / 60);
		for (int round = 0; round < 600; round++)
		{
			size_t		at[8];
			char		kept[8];

			for (int i = 0; i < 8; i++)
			{
				/* the last part of the unigram model is its character table */
				at[i] = (size_t) rand_r(&seed) % (round % 2 == 0 ? length : length < 400 ? length : 400);
				at[i] = round % 3 == 0 ? length - 1 - at[i] : at[i];
				kept[i] = bytes[at[i]];
				bytes[at[i]] = (char) rand_r(&seed);
			}
			try_model(directory, bytes, length);
			for (int i = 7; i >= 0; i--)
				bytes[at[i]] = kept[i];
		}
		free(bytes);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vectors),
		cmocka_unit_test(test_random_ids),
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_added_tokens),
		cmocka_unit_test(test_bos),
		cmocka_unit_test(test_behind_control_tokens),
		cmocka_unit_test(test_user_defined_pieces),
		cmocka_unit_test(test_broken_neighbours),
		cmocka_unit_test(test_which_file),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_other_kinds),
		cmocka_unit_test(test_damaged_character_tables),
		cmocka_unit_test(test_results_outside_the_texts),
		cmocka_unit_test(test_damaged_models),
	};

	return cmocka_run_group_tests(tests, test_set_up, test_tear_down);
}
