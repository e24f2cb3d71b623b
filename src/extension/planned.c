/*
 * planned.c: functions whose signatures are fixed and whose bodies belong to later versions: each raises 0A000.
 *
 * Runs in backends. A symbol per function and not one for all: scripts of this version keep naming them when a later
 * library has the real ones.
 */
#include "session.h"

#define HYMT_PLANNED(symbol, name) \
	PG_FUNCTION_INFO_V1(symbol); \
	Datum \
	symbol(PG_FUNCTION_ARGS) \
	{ \
		ereport(ERROR, \
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED), \
				 errmsg("%s is not available in hymt %s", name, HYMT_VERSION), \
				 errhint("hymt_translate(text, src, tgt) translates one text."))); \
		PG_RETURN_NULL(); \
	}

HYMT_PLANNED(hymt_translate_table, "hymt_translate_table()")
HYMT_PLANNED(hymt_manage_column, "hymt_manage_column()")
HYMT_PLANNED(hymt_unmanage_column, "hymt_unmanage_column()")
HYMT_PLANNED(hymt_detect_language, "hymt_detect_language()")
