/*
 * isa.c: which instruction sets this machine has, and the kernels for them. Engine process, any thread; keeps no state.
 */
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernels.h"

#define ARRAY_LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const struct
{
	HymtIsa		isa;
	const char *name;
}			isa_names[] = {
	{HYMT_ISA_AUTO, "auto"},
	{HYMT_ISA_SCALAR, "scalar"},
	{HYMT_ISA_AVX2, "avx2"},
	{HYMT_ISA_AVX512, "avx512"},
};

const char *
hymt_isa_name(HymtIsa isa)
{
	for (size_t i = 0; i < ARRAY_LENGTH(isa_names); i++)
	{
		if (isa_names[i].isa == isa)
			return isa_names[i].name;
	}
	return "unknown";
}

bool
hymt_isa_parse(const char *name, HymtIsa *isa)
{
	for (size_t i = 0; i < ARRAY_LENGTH(isa_names); i++)
	{
		if (strcmp(isa_names[i].name, name) == 0)
		{
			*isa = isa_names[i].isa;
			return true;
		}
	}
	return false;
}

#if defined(__x86_64__)

/* Which register files the operating system saves on a context switch: XCR0. */
static uint64_t
saved_registers(void)
{
	uint32_t	low;
	uint32_t	high;

	__asm__ volatile ("xgetbv" : "=a" (low), "=d" (high) : "c" (0));
	return ((uint64_t) high << 32) | low;
}

static bool
machine_has(HymtIsa isa)
{
	const uint64_t ymm_state = 0x06;	/* SSE and upper halves of ymm */
	const uint64_t zmm_state = 0xe6;	/* also mask registers and zmm */
	const uint32_t avx512 = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
	uint32_t	eax,
				ebx,
				ecx,
				edx;
	uint32_t	features1;

	if (!__get_cpuid(1, &eax, &ebx, &features1, &edx))
		return false;
	if (!(features1 & bit_OSXSAVE) || !(features1 & bit_AVX) || !(features1 & bit_FMA) || !(features1 & bit_F16C))
		return false;
	if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || !(ebx & bit_AVX2))
		return false;
	if (isa == HYMT_ISA_AVX2)
		return (saved_registers() & ymm_state) == ymm_state;
	return (ebx & avx512) == avx512 && (saved_registers() & zmm_state) == zmm_state;
}

#else

static bool
machine_has(HymtIsa isa)
{
	(void) isa;
	return false;
}

#endif

const HymtKernels *
hymt_kernels_find(HymtIsa isa)
{
	switch (isa)
	{
		case HYMT_ISA_SCALAR:
			return hymt_kernels_scalar();
		case HYMT_ISA_AVX2:
			return machine_has(isa) ? hymt_kernels_avx2() : NULL;
		case HYMT_ISA_AVX512:
			return machine_has(isa) ? hymt_kernels_avx512() : NULL;
		case HYMT_ISA_AUTO:
			break;
	}
	for (HymtIsa best = HYMT_ISA_AVX512; best > HYMT_ISA_SCALAR; best--)
	{
		const HymtKernels *kernels = hymt_kernels_find(best);

		if (kernels != NULL)
			return kernels;
	}
	return hymt_kernels_scalar();
}

bool
hymt_isa_supported(HymtIsa isa)
{
	return hymt_kernels_find(isa) != NULL;
}
