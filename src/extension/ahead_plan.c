/*
 * ahead_plan.c: puts the node that reads ahead into plans.
 *
 * Runs in the planner, in backends. When the paths of a query are finished, walks down from the top to where a target
 * list with calls is computed, and puts the node below that: the projection and the calls stay as they are. Where a
 * function in FROM has the calls, the node is at the rows that the function is called for. Paths that are changed are
 * copied, because others may share them.
 */
#include "ahead.h"

#include "access/htup_details.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/appendinfo.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"

static create_upper_paths_hook_type previous_hook = NULL;

/* What is known where the walk is. */
typedef struct Place
{
	PlannerInfo *root;
	Relids		functions;		/* in FROM that translate, once for each row of what is beside them */
	List	   *limit;			/* the sum of these is how many rows will be wanted; NIL: unknown */
	List	   *wanted;			/* calls that are made above for every row, and have no node yet */
	bool		all_rows;		/* nobody stops before the last one, unless by an error */
	bool		in_workers;		/* below a Gather */
} Place;

static Path *change_path(Place place, Path *path);

/* Below what may want any number of rows, and of which nobody knows what it does with each. */
static Place
anywhere_below(Place place)
{
	place.limit = NIL;
	place.wanted = NIL;
	place.all_rows = false;
	return place;
}

#define COPY_NODE(node, Type) ((Type *) memcpy(palloc(sizeof(Type)), (node), sizeof(Type)))

/* --- the node under a target list --------------------------------------------------------------------------------- */

static List *
calls_of(PathTarget *target, List *given)
{
	List	   *calls = NIL;

	hymt_find_calls((Node *) target->exprs, given, &calls);
	return calls;
}

/*
 * Whether reading a row of a path calls a function in FROM that translates: its errors belong to its row as well, and it
 * translates nothing for rows that nobody wants.
 */
static bool
translates_itself(Place place, Path *path)
{
	return place.functions != NULL && (IS_UPPER_REL(path->parent) || bms_overlap(path->parent->relids, place.functions));
}

/*
 * Whether reading more rows of a path may be noticed, say by effects of arguments of an aggregate. A sort has read them
 * all before it returns the first.
 */
static bool
is_unsafe_input(Place place, Path *input)
{
	return !IsA(input, SortPath) &&
		(translates_itself(place, input) || hymt_is_unsafe_expression(place.root, (Node *) input->pathtarget->exprs));
}

/* A path that returns the rows of its input, at no cost of its own. */
static void
fill_path(Path *path, NodeTag type, const Path *input, PathTarget *target)
{
	path->pathtype = type;
	path->parent = input->parent;
	path->pathtarget = target;
	path->parallel_aware = input->parallel_aware;
	path->parallel_safe = input->parallel_safe;
	path->parallel_workers = input->parallel_workers;
	path->rows = input->rows;
	path->startup_cost = input->startup_cost;
	path->total_cost = input->total_cost;
}

static Path *
make_node_path(Place place, Path *input, PathTarget *target, List *calls)
{
	CustomPath *path = makeNode(CustomPath);

	fill_path(&path->path, T_CustomScan, input, target);
	path->path.pathkeys = input->pathkeys;
	/* That is how counts come back from workers. */
	path->path.parallel_aware = place.in_workers;
	path->custom_paths = list_make1(input);
	path->custom_private = hymt_ahead_path_private(calls, place.limit, place.all_rows);
	path->methods = &hymt_ahead_path_methods;
	return &path->path;
}

static bool
is_row_identity(Node *node)
{
	return IsA(node, Var) && ((Var *) node)->varno == ROWID_VAR;
}

/*
 * The identity of a row in an inheritance tree is a Var that only nodes of the core may pass on. For the node its place
 * is taken by the column of the tree that it is, where there is such a one. NULL: there is none. The target itself: it
 * has no identities.
 */
static PathTarget *
without_identity(PlannerInfo *root, PathTarget *target)
{
	PathTarget *result = target;
	ListCell   *cell;

	foreach(cell, target->exprs)
	{
		Var		   *identity = lfirst(cell);
		Var		   *column;

		if (!is_row_identity((Node *) identity))
			continue;
		column = copyObject(list_nth_node(RowIdentityVarInfo, root->row_identity_vars, identity->varattno - 1)->rowidvar);
		/* ctid and tableoid; what foreign tables add has no name in the tree. */
		if (column->varattno >= 0)
			return NULL;
		column->varno = root->parse->resultRelation;
		if (result == target)
			result = copy_pathtarget(target);
		lfirst(list_nth_cell(result->exprs, foreach_current_index(cell))) = column;
	}
	return result;
}

/* The node makes tuples of what passes through it; expressions may use more columns than a tuple can have. */
static bool
passes(Place place, PathTarget *target)
{
	return list_length(target->exprs) <= MaxTupleAttributeNumber && without_identity(place.root, target) != NULL;
}

/*
 * An Append, whose columns are other expressions than those of its children at the same places. With one child it is
 * taken out of the finished plan.
 */
static Path *
restore_identity(Path *input, PathTarget *target)
{
	AppendPath *path = makeNode(AppendPath);

	fill_path(&path->path, T_Append, input, target);
	path->subpaths = list_make1(input);
	path->first_partial_path = 1;
	path->limit_tuples = -1;
	return &path->path;
}

/* For an input whose target passes. */
static Path *
make_ahead_path(Place place, Path *input, List *calls)
{
	PathTarget *target = without_identity(place.root, input->pathtarget);
	Path	   *node = make_node_path(place, input, target, calls);

	return target == input->pathtarget ? node : restore_identity(node, input->pathtarget);
}

static Path *
project(Place place, Path *input, const Path *original)
{
	ProjectionPath *projection = create_projection_path(place.root, original->parent, input, original->pathtarget);

	projection->path.parallel_safe = original->parallel_safe;
	projection->path.startup_cost = original->startup_cost;
	projection->path.total_cost = original->total_cost;
	projection->path.rows = original->rows;
	projection->path.pathkeys = original->pathkeys;
	return &projection->path;
}

/*
 * Some path computes its target itself: leaves it what the target needs, and has the rest computed above the node. `copy`
 * is a copy of the path; `given` are the targets of what is below it. Returns the path itself when that cannot be.
 */
static Path *
split_target(Place place, Path *path, Path *copy, List *given)
{
	PathTarget *leaves = create_empty_pathtarget();
	List	   *calls = calls_of(path->pathtarget, given);
	Cost		saved;

	if (calls == NIL || translates_itself(place, path))
		return copy;
	hymt_find_leaves((Node *) path->pathtarget->exprs, given, leaves);
	if (!passes(place, leaves) || hymt_is_unsafe_expression(place.root, (Node *) leaves->exprs))
		return copy;
	set_pathtarget_cost_width(place.root, leaves);
	saved = Max(path->pathtarget->cost.per_tuple - leaves->cost.per_tuple, 0) * path->rows;
	copy->pathtarget = leaves;
	copy->total_cost = Max(copy->total_cost - saved, copy->startup_cost);
	return project(place, make_ahead_path(place, copy, calls), path);
}

static List *
targets_of(Path *first, Path *second)
{
	List	   *given = list_copy(first->pathtarget->exprs);

	return second == NULL ? given : list_concat(given, second->pathtarget->exprs);
}

/* --- the kinds of paths ------------------------------------------------------------------------------------------- */

static Path *
change_scan(Place place, Path *path)
{
	Path	   *copy;

	if (calls_of(path->pathtarget, NIL) == NIL)
		return path;
	switch (nodeTag(path))
	{
		case T_Path:
			copy = COPY_NODE(path, Path);
			break;
		case T_IndexPath:
			copy = (Path *) COPY_NODE(path, IndexPath);
			break;
		case T_BitmapHeapPath:
			copy = (Path *) COPY_NODE(path, BitmapHeapPath);
			break;
		case T_TidPath:
			copy = (Path *) COPY_NODE(path, TidPath);
			break;
		case T_TidRangePath:
			copy = (Path *) COPY_NODE(path, TidRangePath);
			break;
		case T_SubqueryScanPath:
			copy = (Path *) COPY_NODE(path, SubqueryScanPath);
			break;
		case T_ForeignPath:
			copy = (Path *) COPY_NODE(path, ForeignPath);
			break;
		default:
			return path;
	}
	return split_target(place, path, copy, NIL);
}

/* --- functions in FROM -------------------------------------------------------------------------------------------- */

/* With arguments of the outer side. One below a Memoize is not called for every row. */
static bool
is_function_join(Place place, Path *path)
{
	Path	   *inner;

	if (!IsA(path, NestPath))
		return false;
	inner = ((JoinPath *) path)->innerjoinpath;
	return inner->pathtype == T_FunctionScan && inner->param_info != NULL && translates_itself(place, inner);
}

/* The calls of a function that is read for each row of the outer side. */
static List *
calls_of_function(Place place, Path *inner, Path *outer)
{
	List	   *calls = NIL;
	ListCell   *cell;

	foreach(cell, planner_rt_fetch(inner->parent->relid, place.root)->functions)
		hymt_find_calls(lfirst_node(RangeTblFunction, cell)->funcexpr, outer->pathtarget->exprs, &calls);
	return calls;
}

/* Whether a join with a function has at least one row for each row of its outer side. */
static bool
keeps_each_row(Place place, JoinPath *join)
{
	Path	   *function = join->innerjoinpath;
	ListCell   *cell;

	if (join->joinrestrictinfo != NIL)
		return false;
	if (join->jointype == JOIN_LEFT)
		return true;
	if (join->jointype != JOIN_INNER || function->parent->baserestrictinfo != NIL ||
		function->param_info->ppi_clauses != NIL)
		return false;
	foreach(cell, planner_rt_fetch(function->parent->relid, place.root)->functions)
	{
		if (expression_returns_set(lfirst_node(RangeTblFunction, cell)->funcexpr))
			return false;
	}
	return true;
}

/* Those of the calls whose arguments the input has, in its terms. */
static List *
calls_on(Path *input, List *calls)
{
	List	   *found = NIL;
	ListCell   *cell;

	foreach(cell, calls)
	{
		Node	   *call = hymt_in_terms_of(lfirst(cell), input->pathtarget->exprs);

		if (call != NULL && IsA(call, FuncExpr))
			found = list_append_unique(found, call);
	}
	return found;
}

/*
 * The rows of the outer side are read ahead. Calls of the list above can be asked for there, too, where each of these
 * rows is one of the join.
 */
static Path *
change_function_join(Place place, JoinPath *join, List *given)
{
	Path	   *outer = join->outerjoinpath;
	List	   *calls = calls_of_function(place, join->innerjoinpath, outer);
	Place		below = anywhere_below(place);

	if (keeps_each_row(place, join))
	{
		below.limit = place.limit;
		calls = list_concat_unique(list_concat_unique(calls, place.wanted), calls_of(join->path.pathtarget, given));
	}
	calls = calls_on(outer, calls);
	if (is_unsafe_input(place, outer) || !passes(place, outer->pathtarget))
	{
		below.wanted = calls;
		join->outerjoinpath = change_path(below, outer);
	}
	else
	{
		join->outerjoinpath = change_path(below, outer);
		if (calls != NIL)
			join->outerjoinpath = make_ahead_path(below, join->outerjoinpath, calls);
	}
	return &join->path;
}

/* --- joins, inheritance, projections ------------------------------------------------------------------------------ */

/* What is read once from its beginning to its end, or in order, can be read ahead; what is read again for each row, not. */
static Path *
change_join(Place place, Path *path)
{
	Place		below = anywhere_below(place);
	JoinPath   *copy;
	List	   *given;

	switch (nodeTag(path))
	{
		case T_NestPath:
			copy = (JoinPath *) COPY_NODE(path, NestPath);
			break;
		case T_MergePath:
			copy = (JoinPath *) COPY_NODE(path, MergePath);
			break;
		default:
			copy = (JoinPath *) COPY_NODE(path, HashPath);
			break;
	}
	given = targets_of(copy->outerjoinpath, copy->innerjoinpath);
	if (is_function_join(place, path))
		return change_function_join(place, copy, given);
	copy->outerjoinpath = change_path(below, copy->outerjoinpath);
	if (IsA(path, HashPath))
		copy->innerjoinpath = change_path(below, copy->innerjoinpath);
	return split_target(place, path, &copy->path, given);
}

/*
 * The children of an inheritance tree, each with a node of its own below its own projection, as the core does it for
 * partitions: rows' identities remain those of the children, and cursors find the current row.
 */
static Path *
change_children(Place place, ProjectionPath *projection, AppendPath *append)
{
	AppendPath *copy = COPY_NODE(append, AppendPath);
	RelOptInfo *parent = append->path.parent;
	ListCell   *cell;

	copy->subpaths = NIL;
	copy->path.pathtarget = projection->path.pathtarget;
	foreach(cell, append->subpaths)
	{
		Path	   *child = lfirst(cell);
		PathTarget *target = copy_pathtarget(projection->path.pathtarget);
		Path	   *projected;

		if (child->parent->reloptkind != RELOPT_OTHER_MEMBER_REL)
			return NULL;
		target->exprs = (List *) HYMT_ADJUST_TO_CHILD(place.root, (Node *) target->exprs, child->parent, parent);
		projected = (Path *) create_projection_path(place.root, child->parent, child, target);
		projected->parallel_safe = child->parallel_safe && projection->path.parallel_safe;
		copy->subpaths = lappend(copy->subpaths, change_path(place, projected));
	}
	copy->path.startup_cost = projection->path.startup_cost;
	copy->path.total_cost = projection->path.total_cost;
	return &copy->path;
}

static Path *
change_projection(Place place, ProjectionPath *path)
{
	ProjectionPath *copy = COPY_NODE(path, ProjectionPath);
	List	   *given = path->subpath->pathtarget->exprs;
	List	   *calls = calls_of(path->path.pathtarget, given);
	Place		below = place;

	if (calls != NIL && IsA(path->subpath, AppendPath) && path->subpath->parent->reloptkind == RELOPT_BASEREL)
	{
		Path	   *changed = change_children(place, path, (AppendPath *) path->subpath);

		if (changed != NULL)
			return changed;
	}
	below.wanted = calls;
	if (calls != NIL && path->subpath->param_info == NULL && passes(place, path->subpath->pathtarget) &&
		!IsA(path->subpath, GroupResultPath) && !is_unsafe_input(place, path->subpath))
	{
		below.wanted = NIL;
		copy->subpath = make_ahead_path(place, change_path(below, path->subpath), calls);
	}
	else
		copy->subpath = change_path(below, path->subpath);
	/* Whether a plan node is needed for it was decided for another input. */
	copy->dummypp = false;
	return &copy->path;
}

/* --- MERGE -------------------------------------------------------------------------------------------------------- */

/*
 * Calls of the source that end up in the actions, because the subquery of the source was pulled up. They are read ahead
 * where every row of the source needs them, whichever action it meets: else texts would be translated for nothing.
 */
static bool
every_row_needs(PlannerInfo *root, Node *call)
{
	bool		matched = false;
	bool		not_matched = false;
	bool		inserts = false;
	ListCell   *cell;

	foreach(cell, root->parse->mergeActionList)
	{
		MergeAction *action = lfirst_node(MergeAction, cell);
		List	   *calls = NIL;

		if (HYMT_MERGE_WITHOUT_SOURCE(action))
			continue;
		hymt_find_calls((Node *) action->targetList, NIL, &calls);
		if (!list_member(calls, call))
			return false;
		if (!HYMT_MERGE_MATCHED(action))
			inserts = true;
		if (action->qual != NULL)
			continue;
		if (HYMT_MERGE_MATCHED(action))
			matched = true;
		else
			not_matched = true;
	}
	return matched && (not_matched || !inserts);
}

/* Columns of the target table are fetched by the actions themselves. */
static bool
is_of_source(Node *call, PathTarget *source)
{
	PathTarget *leaves = create_empty_pathtarget();
	ListCell   *cell;

	hymt_find_leaves(call, source->exprs, leaves);
	foreach(cell, leaves->exprs)
	{
		if (!list_member(source->exprs, lfirst(cell)))
			return false;
	}
	return true;
}

static Path *
change_merge_source(Place place, Path *source)
{
	List	   *all = NIL;
	List	   *calls = NIL;
	ListCell   *cell;

	if (place.root->parse->commandType != CMD_MERGE || !passes(place, source->pathtarget) ||
		is_unsafe_input(place, source))
		return source;
	foreach(cell, place.root->parse->mergeActionList)
		hymt_find_calls((Node *) lfirst_node(MergeAction, cell)->targetList, NIL, &all);
	foreach(cell, all)
	{
		if (is_of_source(lfirst(cell), source->pathtarget) && every_row_needs(place.root, lfirst(cell)))
			calls = lappend(calls, lfirst(cell));
	}
	return calls == NIL ? source : make_ahead_path(place, source, calls);
}

/* --- walking down ------------------------------------------------------------------------------------------------- */

static List *
change_paths(Place place, List *paths)
{
	List	   *changed = NIL;
	ListCell   *cell;

	foreach(cell, paths)
		changed = lappend(changed, change_path(place, lfirst(cell)));
	return changed;
}

/* What a LIMIT adds up: count and offset, or NIL. It evaluates them before it asks for its first row. */
static List *
limit_of(const LimitPath *path)
{
	List	   *limit;

	if (path->limitCount == NULL || path->limitOption != LIMIT_OPTION_COUNT)
		return NIL;
	limit = list_make1(path->limitCount);
	if (path->limitOffset != NULL)
		limit = lappend(limit, path->limitOffset);
	return contain_volatile_functions((Node *) limit) || contain_subplans((Node *) limit) ? NIL : limit;
}

/* Those with one input, which may compute their own target on top of it. */
static Path *
change_upper(Place place, Path *path, Path *copy, Path **subpath)
{
	List	   *given = list_copy((*subpath)->pathtarget->exprs);
	Place		below = anywhere_below(place);

	below.in_workers = place.in_workers || IsA(path, GatherPath) || IsA(path, GatherMergePath);
	*subpath = change_path(below, *subpath);
	return split_target(place, path, copy, given);
}

static Path *
change_path(Place place, Path *path)
{
	Place		below = anywhere_below(place);

	/* Such a one is read anew for each row of another one, and may be asked for values of that. */
	if (path->param_info != NULL)
		return path;
	check_stack_depth();
	switch (nodeTag(path))
	{
		case T_Path:
		case T_IndexPath:
		case T_BitmapHeapPath:
		case T_TidPath:
		case T_TidRangePath:
		case T_SubqueryScanPath:
			return change_scan(place, path);
		case T_ForeignPath:
			return path->parent->reloptkind == RELOPT_JOINREL || IS_UPPER_REL(path->parent) ? path :
				change_scan(place, path);
		case T_NestPath:
		case T_MergePath:
		case T_HashPath:
			return change_join(place, path);
		case T_ProjectionPath:
			return change_projection(place, (ProjectionPath *) path);
		case T_ModifyTablePath:
			{
				ModifyTablePath *copy = COPY_NODE(path, ModifyTablePath);

				below.all_rows = true;
				copy->subpath = change_merge_source(below, change_path(below, copy->subpath));
				return &copy->path;
			}
		case T_LimitPath:
			{
				LimitPath  *copy = COPY_NODE(path, LimitPath);

				below.limit = limit_of(copy);
				copy->subpath = change_path(below, copy->subpath);
				return &copy->path;
			}
		case T_LockRowsPath:
			{
				LockRowsPath *copy = COPY_NODE(path, LockRowsPath);

				copy->subpath = change_path(below, copy->subpath);
				return &copy->path;
			}
		case T_SortPath:
			{
				SortPath   *copy = COPY_NODE(path, SortPath);

				copy->subpath = change_path(below, copy->subpath);
				return &copy->path;
			}
		case T_IncrementalSortPath:
			{
				IncrementalSortPath *copy = COPY_NODE(path, IncrementalSortPath);

				copy->spath.subpath = change_path(below, copy->spath.subpath);
				return &copy->spath.path;
			}
		case T_GatherPath:
			{
				GatherPath *copy = COPY_NODE(path, GatherPath);

				return change_upper(place, path, &copy->path, &copy->subpath);
			}
		case T_GatherMergePath:
			{
				GatherMergePath *copy = COPY_NODE(path, GatherMergePath);

				return change_upper(place, path, &copy->path, &copy->subpath);
			}
		case T_AggPath:
			{
				AggPath    *copy = COPY_NODE(path, AggPath);

				return change_upper(place, path, &copy->path, &copy->subpath);
			}
		case T_GroupPath:
			{
				GroupPath  *copy = COPY_NODE(path, GroupPath);

				return change_upper(place, path, &copy->path, &copy->subpath);
			}
		case T_WindowAggPath:
			{
				WindowAggPath *copy = COPY_NODE(path, WindowAggPath);

				return change_upper(place, path, &copy->path, &copy->subpath);
			}
		case T_UpperUniquePath:
			{
				UpperUniquePath *copy = COPY_NODE(path, UpperUniquePath);

				copy->subpath = change_path(below, copy->subpath);
				return &copy->path;
			}
		case T_MaterialPath:
			{
				MaterialPath *copy = COPY_NODE(path, MaterialPath);

				copy->subpath = change_path(below, copy->subpath);
				return &copy->path;
			}
		case T_AppendPath:
			{
				AppendPath *copy = COPY_NODE(path, AppendPath);

				below.limit = place.limit;
				copy->subpaths = change_paths(below, copy->subpaths);
				return &copy->path;
			}
		case T_MergeAppendPath:
			{
				MergeAppendPath *copy = COPY_NODE(path, MergeAppendPath);

				below.limit = place.limit;
				copy->subpaths = change_paths(below, copy->subpaths);
				return &copy->path;
			}
		default:
			return path;
	}
}

/* --- the hook ----------------------------------------------------------------------------------------------------- */

/* Calls in what was pulled up from a subquery that is outer joined, or part of UNION ALL, stand in placeholders. */
static bool
query_has_calls(PlannerInfo *root, Relids functions)
{
	ListCell   *cell;

	if (functions != NULL || hymt_mentions_call((Node *) root->processed_tlist))
		return true;
	foreach(cell, root->placeholder_list)
	{
		if (hymt_mentions_call((Node *) ((PlaceHolderInfo *) lfirst(cell))->ph_var))
			return true;
	}
	foreach(cell, root->parse->mergeActionList)
	{
		if (hymt_mentions_call((Node *) lfirst_node(MergeAction, cell)->targetList))
			return true;
	}
	foreach(cell, root->append_rel_list)
	{
		AppendRelInfo *info = lfirst(cell);

		if (!OidIsValid(info->parent_reloid) && hymt_mentions_call((Node *) info->translated_vars))
			return true;
	}
	return false;
}

/* Those that depend on rows of something else; others are called once. */
static Relids
translating_functions(PlannerInfo *root)
{
	Relids		found = NULL;
	ListCell   *cell;

	foreach(cell, root->parse->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, cell);

		if (rte->rtekind == RTE_FUNCTION && rte->lateral && hymt_mentions_call((Node *) rte->functions))
			found = bms_add_member(found, foreach_current_index(cell) + 1);
	}
	return found;
}

static void
paths_finished(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input, RelOptInfo *output, void *extra)
{
	Place		place = {.root = root};

	if (previous_hook != NULL)
		previous_hook(root, stage, input, output, extra);
	if (stage != UPPERREL_FINAL || !hymt_read_ahead || hymt_shared == NULL || !hymt_layout_fits())
		return;
	place.functions = translating_functions(root);
	if (!query_has_calls(root, place.functions) || hymt_is_unsafe_source(root))
		return;
	output->pathlist = change_paths(place, output->pathlist);
	place.in_workers = true;
	output->partial_pathlist = change_paths(place, output->partial_pathlist);
}

void
hymt_ahead_init(void)
{
	hymt_ahead_register();
	previous_hook = create_upper_paths_hook;
	create_upper_paths_hook = paths_finished;
}
