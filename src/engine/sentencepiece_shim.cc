/*
 * sentencepiece_shim.cc: the SentencePiece library behind a C interface, the only C++ of the engine program.
 *
 * Runs in the engine program, in any thread. Owns the library's objects. Nothing may be thrown out of it: its callers
 * are C and have no way to catch.
 */
#include "sentencepiece_shim.h"

#include <sentencepiece_processor.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <vector>

struct HymtSpm
{
	sentencepiece::SentencePieceProcessor processor;
};

namespace
{

HymtSpmResult
fail(char *message, const char *reason)
{
	std::snprintf(message, HYMT_SPM_MESSAGE, "%s", reason);
	return HYMT_SPM_FAILED;
}

/*
 * Calls `work`, which returns the library's status, and keeps in whatever it throws. The type of a status is no longer
 * the library's own since 0.2.2; what is called here both have.
 */
template <typename Work>
HymtSpmResult
guarded(char *message, Work work) noexcept
{
	try
	{
		const auto	status = work();

		return status.ok() ? HYMT_SPM_DONE : fail(message, status.ToString().c_str());
	}
	catch (const std::bad_alloc &)
	{
		return HYMT_SPM_NO_MEMORY;
	}
	catch (const std::exception &exception)
	{
		return fail(message, exception.what());
	}
	catch (...)
	{
		return fail(message, "the SentencePiece library failed");
	}
}

/* A copy that free() can release, with a NUL behind it. */
void *
copy_of(const void *data, size_t bytes)
{
	char	   *copy = static_cast<char *>(std::malloc(bytes + 1));

	if (copy == nullptr)
		throw std::bad_alloc();
	if (bytes > 0)
		std::memcpy(copy, data, bytes);
	copy[bytes] = '\0';
	return copy;
}

}								/* namespace */

HymtSpmResult
hymt_spm_open(HymtSpm **spm, const char *bytes, size_t length, char message[HYMT_SPM_MESSAGE])
{
	HymtSpmResult result;

	*spm = nullptr;
	result = guarded(message, [&]
	{
		*spm = new HymtSpm;
		return (*spm)->processor.LoadFromSerializedProto(absl::string_view(bytes, length));
	});
	if (result != HYMT_SPM_DONE)
	{
		hymt_spm_close(*spm);
		*spm = nullptr;
	}
	return result;
}

void
hymt_spm_close(HymtSpm *spm)
{
	delete spm;
}

int
hymt_spm_size(const HymtSpm *spm)
{
	return spm->processor.GetPieceSize();
}

HymtSpmResult
hymt_spm_encode(const HymtSpm *spm, const char *text, size_t length, int32_t **ids, size_t *count,
				char message[HYMT_SPM_MESSAGE])
{
	*ids = nullptr;
	*count = 0;
	return guarded(message, [&]
	{
		std::vector<int> found;
		const auto	status = spm->processor.Encode(absl::string_view(text, length), &found);

		static_assert(sizeof(int) == sizeof(int32_t), "ids are copied as they are");
		if (status.ok())
		{
			*ids = static_cast<int32_t *>(copy_of(found.data(), found.size() * sizeof(int)));
			*count = found.size();
		}
		return status;
	});
}

HymtSpmResult
hymt_spm_decode(const HymtSpm *spm, const int32_t *ids, size_t count, char **text, size_t *length,
				char message[HYMT_SPM_MESSAGE])
{
	*text = nullptr;
	*length = 0;
	return guarded(message, [&]
	{
		std::string decoded;
		const auto	status = spm->processor.Decode(std::vector<int>(ids, ids + count), &decoded);

		if (status.ok())
		{
			*text = static_cast<char *>(copy_of(decoded.data(), decoded.size()));
			*length = decoded.size();
		}
		return status;
	});
}
