/*
 * ahead_expr.c: which calls can be read ahead, and which of their arguments can be evaluated before their row's turn.
 *
 * Runs in the planner, in backends. A call counts when its expression certainly makes it: one that stands in a branch is
 * not found. Its arguments must be free of effects and unable to raise, so that nobody can tell that they were evaluated,
 * even for rows that are never returned.
 */
#include "ahead.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

/* --- the functions ------------------------------------------------------------------------------------------------ */

/* What was found out about functions, by OID; forgotten whenever any function changes. */
#define KNOWN_FUNCTIONS 64

static struct
{
	Oid			function;		/* invalid: free */
	bool		translates;
}			known[KNOWN_FUNCTIONS];

static void
functions_changed(Datum arg, int cache, uint32 hash)
{
	memset(known, 0, sizeof(known));
}

static bool
has_arguments_of_translate(Form_pg_proc form)
{
	static const Oid types[] = {TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, JSONBOID};

	return form->pronargs == lengthof(types) && !form->proretset &&
		memcmp(form->proargtypes.values, types, sizeof(types)) == 0;
}

static bool
attribute_is(HeapTuple tuple, AttrNumber attribute, const char *const *values)
{
	bool		isnull;
	Datum		datum = SysCacheGetAttr(PROCOID, tuple, attribute, &isnull);
	char	   *value;
	bool		found = false;

	if (isnull)
		return false;
	value = TextDatumGetCString(datum);
	for (; *values != NULL && !found; values++)
		found = strcmp(value, *values) == 0;
	pfree(value);
	return found;
}

/* By what it runs and not by its name, which depends on the schema and on who created the extension again meanwhile. */
static bool
look_up(Oid function)
{
	static const char *const symbols[] = {"hymt_translate", "hymt_translate_details", NULL};
	static const char *const libraries[] = {"$libdir/hymt", NULL};
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc form;
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_proc) GETSTRUCT(tuple);
	result = form->prolang == ClanguageId && has_arguments_of_translate(form) &&
		form->provolatile != PROVOLATILE_VOLATILE &&
		attribute_is(tuple, Anum_pg_proc_prosrc, symbols) && attribute_is(tuple, Anum_pg_proc_probin, libraries);
	ReleaseSysCache(tuple);
	return result;
}

static bool
translates(Oid function)
{
	static bool registered = false;
	int			place = murmurhash32(function) % KNOWN_FUNCTIONS;

	if (function < FirstNormalObjectId)
		return false;
	if (known[place].function == function)
		return known[place].translates;
	if (!registered)
	{
		CacheRegisterSyscacheCallback(PROCOID, functions_changed, (Datum) 0);
		registered = true;
	}
	/* The look-up may forget everything, so it comes before the place is taken. */
	known[place].translates = look_up(function);
	known[place].function = function;
	return known[place].translates;
}

static bool
is_call(Node *node)
{
	return IsA(node, FuncExpr) && translates(((FuncExpr *) node)->funcid);
}

static bool
mentions_call_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	return is_call(node) || expression_tree_walker(node, mentions_call_walker, context);
}

bool
hymt_mentions_call(Node *node)
{
	return mentions_call_walker(node, NULL);
}

/* --- arguments ---------------------------------------------------------------------------------------------------- */

static bool safe_argument(Node *node);

static bool
safe_arguments(List *arguments)
{
	ListCell   *cell;

	foreach(cell, arguments)
	{
		if (!safe_argument(lfirst(cell)))
			return false;
	}
	return true;
}

/* Functions that raise for no text at all, given a collation where they want one. */
static bool
safe_function(Oid function, Oid collation)
{
	switch (function)
	{
		case F_LOWER_TEXT:
		case F_UPPER_TEXT:
		case F_INITCAP:
			return OidIsValid(collation);
		case F_REPLACE:
			/* Not every version searches with others, and none complains before it has something to search in. */
			return OidIsValid(collation) && get_collation_isdeterministic(collation);
		case F_TEXTCAT:
		case F_BTRIM_TEXT:
		case F_BTRIM_TEXT_TEXT:
		case F_LTRIM_TEXT:
		case F_LTRIM_TEXT_TEXT:
		case F_RTRIM_TEXT:
		case F_RTRIM_TEXT_TEXT:
		case F_LEFT:
		case F_RIGHT:
		case F_TEXT_BPCHAR:
		case F_TEXT_NAME:
		case F_JSONB_OBJECT_FIELD:
		case F_JSONB_OBJECT_FIELD_TEXT:
		case F_JSONB_ARRAY_ELEMENT:
		case F_JSONB_ARRAY_ELEMENT_TEXT:
			return true;
		default:
			return false;
	}
}

/* Types whose output is always a text, and never fails. */
static bool
safe_output(Oid type)
{
	switch (type)
	{
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
		case NAMEOID:
		case UUIDOID:
			return true;
		default:
			return false;
	}
}

static bool
safe_conversion(const CoerceViaIO *conversion)
{
	return safe_output(exprType((Node *) conversion->arg)) &&
		(conversion->resulttype == TEXTOID || conversion->resulttype == VARCHAROID);
}

static bool
safe_argument(Node *node)
{
	switch (nodeTag(node))
	{
		case T_Var:
			return ((Var *) node)->varlevelsup == 0;
		case T_Const:
		case T_Param:			/* one that a subquery still has to compute is left alone when it comes to that */
			return true;
		case T_Aggref:
		case T_WindowFunc:
			return true;		/* values of the input; one that is not is refused as a leaf */
		case T_RelabelType:
			return safe_argument((Node *) ((RelabelType *) node)->arg);
		case T_CollateExpr:
			return safe_argument((Node *) ((CollateExpr *) node)->arg);
		case T_CoalesceExpr:
			return safe_arguments(((CoalesceExpr *) node)->args);
		case T_CoerceViaIO:
			return safe_conversion((CoerceViaIO *) node) && safe_argument((Node *) ((CoerceViaIO *) node)->arg);
		case T_FuncExpr:
			return safe_function(((FuncExpr *) node)->funcid, ((FuncExpr *) node)->inputcollid) &&
				safe_arguments(((FuncExpr *) node)->args);
		case T_OpExpr:
			set_opfuncid((OpExpr *) node);
			return safe_function(((OpExpr *) node)->opfuncid, ((OpExpr *) node)->inputcollid) &&
				safe_arguments(((OpExpr *) node)->args);
		default:
			return false;
	}
}

/* The same, where the input may have the value of a part already. */
typedef struct Given
{
	List	   *given;
	List	  **calls;
	PathTarget *leaves;
} Given;

/*
 * Since version 16 a PlaceHolderVar has other phnullingrels above an outer join than below it, and is the same all the
 * same: it was computed below, and must not be looked into above.
 */
static bool
is_given_place_holder(const PlaceHolderVar *place_holder, List *given)
{
	ListCell   *cell;

	foreach(cell, given)
	{
		const PlaceHolderVar *other = lfirst(cell);

		if (IsA(other, PlaceHolderVar) && other->phid == place_holder->phid &&
			other->phlevelsup == place_holder->phlevelsup)
			return true;
	}
	return false;
}

static bool
is_given(Node *node, List *given)
{
	if (IsA(node, PlaceHolderVar) && is_given_place_holder((PlaceHolderVar *) node, given))
		return true;
	return given != NIL && !IsA(node, Const) && !IsA(node, Param) && list_member(given, node);
}

/* Replaces what the input has by a null constant, which is as safe as a Var. */
static Node *
without_given(Node *node, void *given)
{
	if (node == NULL)
		return NULL;
	if (is_given(node, given))
		return (Node *) makeNullConst(exprType(node), exprTypmod(node), exprCollation(node));
	return expression_tree_mutator(node, without_given, given);
}

static bool
is_safe_call(FuncExpr *call, List *given)
{
	List	   *arguments = call->args;

	if (given != NIL)
		arguments = (List *) without_given((Node *) arguments, given);
	return safe_arguments(arguments);
}

/* --- calls and leaves --------------------------------------------------------------------------------------------- */

static bool find_calls_walker(Node *node, void *context);

/* Of those whose first argument only is certainly evaluated. */
static bool
find_in_first(List *arguments, Given *context)
{
	return arguments != NIL && find_calls_walker(linitial(arguments), context);
}

static bool
find_calls_walker(Node *node, void *context)
{
	Given	   *given = context;

	if (node == NULL || is_given(node, given->given))
		return false;
	switch (nodeTag(node))
	{
		case T_FuncExpr:
			if (is_call(node) && is_safe_call((FuncExpr *) node, given->given))
			{
				*given->calls = list_append_unique(*given->calls, node);
				return false;
			}
			break;
		case T_CoalesceExpr:
			return find_in_first(((CoalesceExpr *) node)->args, given);
		case T_BoolExpr:
			return find_in_first(((BoolExpr *) node)->args, given);
		case T_List:
		case T_TargetEntry:
		case T_PlaceHolderVar:
		case T_OpExpr:
		case T_DistinctExpr:
		case T_NullIfExpr:
		case T_ScalarArrayOpExpr:
		case T_RelabelType:
		case T_CoerceViaIO:
		case T_CollateExpr:
		case T_CoerceToDomain:
		case T_FieldSelect:
		case T_RowExpr:
		case T_ArrayExpr:
		case T_MinMaxExpr:
		case T_NullTest:
		case T_BooleanTest:
			break;
		default:
			return false;
	}
	return expression_tree_walker(node, find_calls_walker, context);
}

void
hymt_find_calls(Node *node, List *given, List **calls)
{
	Given		context = {.given = given, .calls = calls};

	(void) find_calls_walker(node, &context);
}

static bool
find_leaves_walker(Node *node, void *context)
{
	Given	   *given = context;

	if (node == NULL)
		return false;
	if (is_given(node, given->given) || IsA(node, Var) || IsA(node, Aggref) || IsA(node, GroupingFunc) ||
		IsA(node, WindowFunc) || (IsA(node, PlaceHolderVar) && !hymt_mentions_call(node)))
	{
		add_new_column_to_pathtarget(given->leaves, (Expr *) node);
		return false;
	}
	return expression_tree_walker(node, find_leaves_walker, context);
}

void
hymt_find_leaves(Node *node, List *given, PathTarget *leaves)
{
	Given		context = {.given = given, .leaves = leaves};

	(void) find_leaves_walker(node, &context);
}

typedef struct Terms
{
	List	   *given;
	bool		lacking;
} Terms;

static Node *
given_value(Node *node, List *given)
{
	ListCell   *cell;

	foreach(cell, given)
	{
		Node	   *other = lfirst(cell);

		if (IsA(node, Var) && IsA(other, Var) ? ((Var *) node)->varno == ((Var *) other)->varno &&
			((Var *) node)->varattno == ((Var *) other)->varattno && ((Var *) other)->varlevelsup == 0 :
			is_given(node, list_make1(other)))
			return other;
	}
	return NULL;
}

static Node *
in_terms_mutator(Node *node, void *context)
{
	Terms	   *terms = context;
	Node	   *value;

	if (node == NULL)
		return NULL;
	value = given_value(node, terms->given);
	if (value != NULL)
		return copyObject(value);
	if (IsA(node, Var) || IsA(node, PlaceHolderVar) || IsA(node, Aggref) || IsA(node, GroupingFunc) ||
		IsA(node, WindowFunc))
		terms->lacking = true;
	return expression_tree_mutator(node, in_terms_mutator, context);
}

Node *
hymt_in_terms_of(Node *node, List *given)
{
	Terms		terms = {.given = given};
	Node	   *result = in_terms_mutator(node, &terms);

	return terms.lacking ? NULL : result;
}

/* --- sources ------------------------------------------------------------------------------------------------------ */

static bool
unsafe_query_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		Query	   *query = (Query *) node;

		/* Locks rows, writes, or has functions that return sets a row at a time. */
		return query->commandType != CMD_SELECT || query->rowMarks != NIL || query->hasTargetSRFs ||
			query_tree_walker(query, unsafe_query_walker, context, 0);
	}
	return expression_tree_walker(node, unsafe_query_walker, context);
}

static bool
is_unsafe_query(Query *query)
{
	return unsafe_query_walker((Node *) query, NULL) || contain_volatile_functions((Node *) query);
}

/* Subqueries that are evaluated for each row were planned already: what they are is in what is left of their queries. */
static bool
unsafe_subplan_walker(Node *node, void *context)
{
	PlannerInfo *root = context;

	if (node == NULL)
		return false;
	if (IsA(node, SubPlan))
	{
		PlannerInfo *subroot = list_nth(root->glob->subroots, ((SubPlan *) node)->plan_id - 1);

		if (subroot->parse->commandType != CMD_SELECT || subroot->parse->rowMarks != NIL ||
			hymt_is_unsafe_expression(subroot, (Node *) subroot->parse->targetList) || hymt_is_unsafe_source(subroot))
			return true;
	}
	return expression_tree_walker(node, unsafe_subplan_walker, context);
}

bool
hymt_is_unsafe_expression(PlannerInfo *root, Node *node)
{
	return contain_volatile_functions(node) || unsafe_subplan_walker(node, root);
}

static bool
is_unsafe_cte(PlannerInfo *root, RangeTblEntry *rte)
{
	ListCell   *cell;

	for (Index level = rte->ctelevelsup; level > 0 && root != NULL; level--)
		root = root->parent_root;
	if (root == NULL || rte->self_reference)
		return true;
	foreach(cell, root->parse->cteList)
	{
		CommonTableExpr *cte = lfirst(cell);

		if (strcmp(cte->ctename, rte->ctename) == 0)
			return !IsA(cte->ctequery, Query) || is_unsafe_query((Query *) cte->ctequery);
	}
	return true;
}

static bool
is_unsafe_relation(PlannerInfo *root, RangeTblEntry *rte)
{
	if (hymt_is_unsafe_expression(root, (Node *) rte->securityQuals))
		return true;
	switch (rte->rtekind)
	{
		case RTE_SUBQUERY:
			return is_unsafe_query(rte->subquery);
		case RTE_FUNCTION:
			return hymt_is_unsafe_expression(root, (Node *) rte->functions);
		case RTE_TABLEFUNC:
			return (rte->lateral && hymt_mentions_call((Node *) rte->tablefunc)) ||
				hymt_is_unsafe_expression(root, (Node *) rte->tablefunc);
		case RTE_VALUES:
			return hymt_is_unsafe_expression(root, (Node *) rte->values_lists);
		case RTE_CTE:
			return is_unsafe_cte(root, rte);
		case RTE_RELATION:
			return hymt_is_unsafe_expression(root, (Node *) rte->tablesample);
		default:
			return false;
	}
}

bool
hymt_is_unsafe_source(PlannerInfo *root)
{
	Query	   *parse = root->parse;
	ListCell   *cell;

	if (parse->hasTargetSRFs || hymt_is_unsafe_expression(root, (Node *) parse->jointree) ||
		hymt_is_unsafe_expression(root, parse->havingQual))
		return true;
	/* Tables of subqueries that were pulled up are in it, too. */
	foreach(cell, parse->rtable)
	{
		if (is_unsafe_relation(root, lfirst(cell)))
			return true;
	}
	return false;
}
