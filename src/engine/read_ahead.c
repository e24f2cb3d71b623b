/*
 * read_ahead.c: bringing a model's mapped weights into memory, with progress.
 *
 * Runs in the engine program, while a model is loaded, in several threads: one alone does not keep a fast disk busy,
 * and entering the pages of a file that is in memory already takes time, too. Owns its list of pieces and its threads.
 * Nothing is copied: what is read is the system's page cache, which the mapping shows.
 */
#include "model_parts.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "machine.h"
#include "pool.h"

#define PIECE_BYTES (16u * 1024 * 1024)
#define MAX_THREADS 16

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22	/* Linux 5.14; older kernels answer EINVAL */
#endif

typedef struct Piece
{
	const unsigned char *data;
	size_t		length;
} Piece;

typedef struct Work
{
	const HymtModel *model;
	const HymtModelOptions *options;
	int			first_percent;
	Piece	   *pieces;
	size_t		count;
	_Atomic uint64_t done;		/* bytes */
	atomic_bool failed;
} Work;

/* The pieces of one part; counts them only when there is no room for them yet. */
static void
list_part(Work *work, const HymtTensorPart *part)
{
	const unsigned char *data = part->data;

	for (uint64_t at = 0; at < part->bytes; at += PIECE_BYTES)
	{
		uint64_t	left = part->bytes - at;

		if (work->pieces != NULL)
			work->pieces[work->count] = (Piece) {data + at, left < PIECE_BYTES ? (size_t) left : PIECE_BYTES};
		work->count++;
	}
}

static void
list_pieces(Work *work)
{
	work->count = 0;
	for (size_t i = 0; i < work->model->weight_count; i++)
	{
		HymtTensorPart parts[HYMT_TENSOR_PARTS];
		int			count = hymt_tensor_parts(work->model->weights[i].tensor, parts);

		for (int p = 0; p < count; p++)
			list_part(work, &parts[p]);
	}
}

/* In the order of addresses: a disk is fastest from front to back. */
static int
compare_pieces(const void *left, const void *right)
{
	const Piece *a = left;
	const Piece *b = right;

	return a->data < b->data ? -1 : a->data > b->data;
}

/* Bring a piece of a mapping into memory; false when its file cannot be read. */
static bool
read_piece(const Piece *piece)
{
	uintptr_t	page = (uintptr_t) sysconf(_SC_PAGESIZE);
	uintptr_t	begin = (uintptr_t) piece->data / page * page;
	uintptr_t	end = (uintptr_t) piece->data + piece->length;
	int			result;

	do
		result = madvise((void *) begin, end - begin, MADV_POPULATE_READ);
	while (result != 0 && errno == EINTR);
	if (result == 0)
		return true;
	if (errno == EFAULT || errno == EHWPOISON)
		return false;
	/* An older kernel: let it read in the background. Pages that are late come in when they are first used. */
	(void) madvise((void *) begin, end - begin, MADV_WILLNEED);
	return true;
}

static void
work_read(void *context, int item, int thread)
{
	Work	   *work = context;
	uint64_t	done;

	if (atomic_load(&work->failed))
		return;
	if (!read_piece(&work->pieces[item]))
		atomic_store(&work->failed, true);
	done = atomic_fetch_add(&work->done, work->pieces[item].length) + work->pieces[item].length;
	/* only the caller's own thread may call it back */
	if (thread == 0)
		work->options->progress(work->options->progress_context,
								work->first_percent + (int) (done * (uint64_t) (100 - work->first_percent) /
															 work->model->stored_bytes), "reading weights");
}

static bool
run(Work *work, HymtError *error)
{
	int			threads = hymt_machine_processors();
	HymtPool   *pool;

	work->pieces = calloc(work->count + 1, sizeof *work->pieces);
	if (work->pieces == NULL)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "%s: out of memory", work->model->path);
	list_pieces(work);
	qsort(work->pieces, work->count, sizeof *work->pieces, compare_pieces);
	pool = hymt_pool_open(threads < MAX_THREADS ? threads : MAX_THREADS, false, error);
	if (pool == NULL)
		return false;
	hymt_pool_run(pool, (int) work->count, work_read, work);
	hymt_pool_close(pool);
	return !atomic_load(&work->failed) ||
		hymt_fail(error, HYMT_FAILURE_MODEL_UNREADABLE, "%s: the weights cannot be read: I/O error", work->model->path);
}

bool
hymt_weights_read_ahead(const HymtModel *model, const HymtModelOptions *options, int first_percent, HymtError *error)
{
	Work		work = {.model = model, .options = options, .first_percent = first_percent};
	bool		ok;

	options->progress(options->progress_context, first_percent, "reading weights");
	list_pieces(&work);
	ok = work.count <= HYMT_POOL_MAX_ITEMS ? run(&work, error)
		: hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED, "%s: is too large", model->path);
	free(work.pieces);
	return ok;
}
