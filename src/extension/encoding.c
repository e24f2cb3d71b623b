/*
 * encoding.c: between the server encoding and UTF-8, which is what the engine speaks.
 *
 * Runs in backends. Owns nothing. Conversions of the engine's output never raise because of its content: whether a bad
 * translation is an error is decided by on_error, and no error may be caught for that.
 */
#include "session.h"

#include "catalog/namespace.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

const char *
hymt_server_to_utf8(const char *text, Size length, Size *utf8_length)
{
	char	   *utf8 = (char *) pg_do_encoding_conversion((unsigned char *) unconstify(char *, text), (int) length,
														  GetDatabaseEncoding(), PG_UTF8);

	*utf8_length = utf8 == text ? length : strlen(utf8);
	return utf8;
}

const char *
hymt_server_to_utf8_quietly(const char *text, Size length, Size *utf8_length)
{
	Oid			procedure;
	Size		room = length * MAX_CONVERSION_GROWTH + 1;
	Size		done;
	char	   *utf8;

	*utf8_length = length;
	if (GetDatabaseEncoding() == PG_UTF8)
		return text;
	if (GetDatabaseEncoding() == PG_SQL_ASCII)
		return pg_verify_mbstr(PG_UTF8, text, (int) length, true) ? text : NULL;
	procedure = FindDefaultConversionProc(GetDatabaseEncoding(), PG_UTF8);
	if (!OidIsValid(procedure) || room >= MaxAllocSize)
		return NULL;
	utf8 = palloc(room);
	*utf8 = '\0';
	done = pg_do_encoding_conversion_buf(procedure, GetDatabaseEncoding(), PG_UTF8,
										 (unsigned char *) unconstify(char *, text), (int) length,
										 (unsigned char *) utf8, (int) room, true);
	*utf8_length = strlen(utf8);
	return done == length ? utf8 : NULL;
}

/*
 * Converts as much as possible into *converted (palloc'ed, *converted_length bytes); returns how many bytes of `utf8`
 * that was. Stops at the first character that has no equivalent.
 */
static Size
convert_to_server(const char *utf8, Size length, char **converted, Size *converted_length)
{
	Oid			procedure = FindDefaultConversionProc(PG_UTF8, GetDatabaseEncoding());
	Size		room = length * MAX_CONVERSION_GROWTH + 1;
	Size		done;

	if (!OidIsValid(procedure))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("no conversion from encoding \"%s\" to \"%s\" exists",
						pg_encoding_to_char(PG_UTF8), GetDatabaseEncodingName())));
	*converted = palloc_extended(room, MCXT_ALLOC_HUGE);
	**converted = '\0';
	done = pg_do_encoding_conversion_buf(procedure, PG_UTF8, GetDatabaseEncoding(),
										 (unsigned char *) unconstify(char *, utf8), (int) length,
										 (unsigned char *) *converted, (int) Min(room, PG_INT32_MAX), true);
	*converted_length = strlen(*converted);
	return done;
}

static bool
server_speaks_utf8(void)
{
	return GetDatabaseEncoding() == PG_UTF8 || GetDatabaseEncoding() == PG_SQL_ASCII;
}

text *
hymt_utf8_to_server(const char *utf8, Size length, uint32 *character)
{
	char	   *converted;
	Size		converted_length;
	Size		done;
	text	   *result;

	*character = 0;
	if (!pg_verify_mbstr(PG_UTF8, utf8, (int) length, true))
		return NULL;
	if (server_speaks_utf8())
		return cstring_to_text_with_len(utf8, (int) length);

	done = convert_to_server(utf8, length, &converted, &converted_length);
	if (done < length)
	{
		*character = utf8_to_unicode((const unsigned char *) utf8 + done);
		pfree(converted);
		return NULL;
	}
	result = cstring_to_text_with_len(converted, (int) converted_length);
	pfree(converted);
	return result;
}

char *
hymt_text_to_server(const char *utf8, Size length)
{
	StringInfoData out;

	initStringInfo(&out);
	while (length > 0)
	{
		Size		valid = pg_encoding_verifymbstr(PG_UTF8, utf8, (int) length);
		Size		done = valid;

		if (server_speaks_utf8())
			appendBinaryStringInfo(&out, utf8, (int) valid);
		else if (valid > 0)
		{
			char	   *converted;
			Size		converted_length;

			done = convert_to_server(utf8, valid, &converted, &converted_length);
			appendBinaryStringInfo(&out, converted, (int) converted_length);
			pfree(converted);
		}
		if (done < length)
		{
			/* One character without equivalent, or one byte that is no UTF-8. */
			appendStringInfoChar(&out, '?');
			done += done < valid ? pg_utf_mblen((const unsigned char *) utf8 + done) : 1;
		}
		utf8 += done;
		length -= done;
	}
	return out.data;
}
