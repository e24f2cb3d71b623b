/*
 * fuzz_config.c: the small files of a model directory: config.json, generation_config.json, hymt.json, README.md. Beside
 * them lie weights that fit the seeds, so that a model opens whose configuration is not damaged. Of what opens, every
 * form of prompt is made that there is, with the demo's tokenizer. Run from the repository root.
 */
#include <stdlib.h>
#include <string.h>

#include "prompts.h"
#include "readers.h"
#include "support.h"

#define LIMIT 4000				/* tokens of a prompt */
#define WISHES 7				/* ways to ask */

static FuzzFile files[] = {
	{"config.json", NULL, 0},
	{"generation_config.json", NULL, 0},
	{"hymt.json", NULL, 0},
	{"README.md", NULL, 0},
	{NULL, NULL, 0},
};

static HymtTokenizer *tokenizer;

static void
prepare(void)
{
	HymtError	error;

	if (tokenizer != NULL)
		return;
	fuzz_write_weights();
	fuzz_require(hymt_tokenizer_open_model(&tokenizer, "models/demo", &error), "the demo's tokenizer opens");
}

static bool
word_prompt(const HymtPrompts *prompts, const HymtPromptRequest *request)
{
	HymtError	error = {HYMT_FAILURE_NONE, ""};
	char	   *wording = hymt_prompt_wording(prompts, request, &error);
	bool		there = wording != NULL;

	fuzz_require(there || error.failure == HYMT_FAILURE_UNSUPPORTED, "a prompt is worded, or there is none");
	fuzz_require(!there || (hymt_prompts_have(prompts, request) && strstr(wording, request->text.data) != NULL),
				 "the text is in it");
	free(wording);
	return there;
}

static void
encode_prompt(const HymtPrompts *prompts, const HymtPromptRequest *request, bool there)
{
	HymtIds		ids = {0};
	size_t		text_tokens;
	HymtError	error = {HYMT_FAILURE_NONE, ""};

	if (hymt_prompt_encode(prompts, tokenizer, request, LIMIT, &ids, &text_tokens, &error))
		fuzz_require(there && ids.count > 0 && text_tokens > 0, "a prompt that is worded has tokens");
	else
		fuzz_require(error.failure == HYMT_FAILURE_TOO_LONG || (!there && error.failure == HYMT_FAILURE_UNSUPPORTED),
					 "a prompt is too long, or there is none");
	hymt_ids_free(&ids);
}

/* Every form in both wordings; one of them, `choice`, as ids, too, which takes longer. */
static void
make_prompts(const HymtModel *model, size_t choice)
{
	static const HymtTerm terms[] = {{{"\xE7\x8E\xAF", 3}, {"ring", 4}}, {{"b", 1}, {"c", 1}}};
	const HymtPromptRequest wishes[WISHES] = {
		{.term_count = 0},
		{.context = {"a context", 9}},
		{.terms = terms, .term_count = 2},
		{.format = HYMT_FORMAT_TAGS},
		{.format = HYMT_FORMAT_DELIMITERS},
		{.style = {"formal", 6}},
		{.style = {"formal", 6}, .format = HYMT_FORMAT_TAGS},
	};
	HymtPrompts prompts;
	HymtError	error = {HYMT_FAILURE_NONE, ""};

	if (!hymt_prompts_open(&prompts, model, tokenizer, &error))
	{
		fuzz_require(error.failure == HYMT_FAILURE_MODEL_UNSUPPORTED || error.failure == HYMT_FAILURE_MODEL_BROKEN,
					 "prompts are refused as the model's fault");
		return;
	}
	for (size_t i = 0; i < 2 * WISHES; i++)
	{
		HymtPromptRequest request = wishes[i / 2];
		bool		there;

		request.source = hymt_language_find(i % 2 == 0 ? "zh" : "de", 2);
		request.target = hymt_language_find("en", 2);
		request.text = (HymtText) {"a text", 6};
		there = word_prompt(&prompts, &request);
		if (i == choice % (2 * WISHES))
			encode_prompt(&prompts, &request, there);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	HymtModel	model;
	HymtError	error = {HYMT_FAILURE_NONE, ""};

	prepare();
	fuzz_cut(files, data, size);
	fuzz_write_files(files);
	if (hymt_model_open(&model, fuzz_directory(), NULL, &error))
	{
		fuzz_read_model(&model);
		make_prompts(&model, size);
		hymt_model_close(&model);
	}
	else
		fuzz_check_error(&error, files);
	return 0;
}
