/*
 * copy_text.c: copy_text(text), which returns a copy of its argument: the least that a function that returns a text does.
 *
 * For bench/cache, which builds and loads it into a server of its own.
 */
#include "postgres.h"

#include "fmgr.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(copy_text);

Datum
copy_text(PG_FUNCTION_ARGS)
{
	text	   *source = PG_GETARG_TEXT_PP(0);
	Size		length = VARSIZE_ANY_EXHDR(source);
	text	   *copy = palloc(length + VARHDRSZ);

	SET_VARSIZE(copy, length + VARHDRSZ);
	memcpy(VARDATA(copy), VARDATA_ANY(source), length);
	PG_RETURN_TEXT_P(copy);
}
