# hymt: translation inside PostgreSQL.
#
#   make                    the extension (hymt.so) and the engine program (build/hymt-engine)
#   make install            both, the SQL scripts and the demo model
#   make installcheck       pg_regress, isolation and TAP tests against an installed hymt
#   make installcheck-read-ahead-off   the first two of these without reading ahead
#   make check-engine       engine unit tests and reference vectors; needs no PostgreSQL
#   make check-sanitize     most of them once more, with AddressSanitizer and UndefinedBehaviorSanitizer
#   make check-fuzz         random inputs (FUZZ_RUNS for each target) to whatever reads files and frames; needs clang
#   PG_CONFIG=…             as in any PGXS extension
#
# The extension and the engine share no object file: one is position-independent code inside PostgreSQL, the other a
# program of its own with its own compiler flags.

EXTENSION = hymt
EXTVERSION = 0.2.0

MODULE_big = hymt
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/extension/*.c) $(wildcard src/protocol/*.c)))
# Upgrade scripts and the full scripts of former versions; this version's full script is made from hymt.sql.
DATA = $(filter-out sql/hymt--$(EXTVERSION).sql,$(sort $(wildcard sql/hymt--*.sql)))
DATA_built = sql/hymt--$(EXTVERSION).sql
PGFILEDESC = "hymt - translation inside the database"

# clang does not know the warning.
GCC_ONLY_FLAGS = $(if $(findstring clang,$(shell $(CC) --version)),,-Wno-clobbered)
PG_CFLAGS = -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -Wno-sign-compare \
	-Wno-declaration-after-statement -Wno-ignored-attributes $(GCC_ONLY_FLAGS)
PG_CPPFLAGS = -DHYMT_VERSION='"$(EXTVERSION)"' $(UTF8PROC_CFLAGS)
SHLIB_LINK = $(UTF8PROC_LIBS)

PKG_CONFIG ?= pkg-config
UTF8PROC_CFLAGS := $(shell $(PKG_CONFIG) --cflags libutf8proc)
UTF8PROC_LIBS := $(shell $(PKG_CONFIG) --libs libutf8proc)

# pg_regress wants sql/ and expected/ side by side, where sql/ here holds the extension's own scripts: a folder of links.
REGRESS = $(patsubst sql-tests/%.sql,%,$(sort $(wildcard sql-tests/*.sql)))
REGRESS_OPTS = --inputdir=build/regress --outputdir=build/regress --temp-config=tests/regress.conf
ISOLATION = $(patsubst tests/specs/%.spec,%,$(sort $(wildcard tests/specs/*.spec)))
ISOLATION_OPTS = --inputdir=build/regress --outputdir=build/regress
TAP_TESTS = 1
PROVE_TESTS = $(sort $(wildcard tests/t/*.pl))
PROVE_FLAGS = -I tests/perl

EXTRA_CLEAN = build sql/hymt--$(EXTVERSION).sql tmp_check

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

# Structs in shared memory are the same in all files, or there is a crash.
$(OBJS): $(wildcard src/extension/*.h src/protocol/*.h)

all: engine
install: install-engine
installcheck: regress-folder
# The regression and isolation tests again, with the same expected output, reading nothing ahead.
installcheck-read-ahead-off: regress-folder
	PGOPTIONS='-c hymt.read_ahead=off' $(pg_regress_installcheck) $(REGRESS_OPTS) $(REGRESS)
	PGOPTIONS='-c hymt.read_ahead=off' $(pg_isolation_regress_installcheck) $(ISOLATION_OPTS) $(ISOLATION)

.PHONY: installcheck-read-ahead-off engine install-engine uninstall-engine regress-folder check-engine test-programs check-sanitize \
	fuzz-programs check-fuzz fuzz-coverage

sql/hymt--$(EXTVERSION).sql: sql/hymt.sql
	cp $< $@

regress-folder:
	@mkdir -p build/regress
	@ln -sfn ../../sql-tests build/regress/sql
	@ln -sfn ../../expected build/regress/expected
	@ln -sfn ../../tests/specs build/regress/specs

# --- the engine program ------------------------------------------------------------------------------------------

# Variants of the program, with sanitizers or coverage, are built beside it.
BUILD ?= build

# No contraction, no fast-math: every device of a class must give the same bits (doc/numerics.md).
ENGINE_CC ?= $(CC)
ENGINE_OPT ?= -O2 -g
ENGINE_CFLAGS = -std=gnu11 $(ENGINE_OPT) -Wall -Wextra -Wshadow -Wmissing-prototypes -ffp-contract=off -fno-strict-aliasing \
	-fstack-protector-strong -pthread -MMD -MP -DHYMT_VERSION='"$(EXTVERSION)"' $(ENGINE_EXTRA) \
	$(shell $(PKG_CONFIG) --cflags libpcre2-8 jansson libutf8proc)
# SentencePiece is C++; nothing but its shim is. Its version 0.2.2 deprecates functions for others that older ones lack.
ENGINE_CXX ?= $(if $(findstring clang,$(ENGINE_CC)),clang++,g++)
ENGINE_CXXFLAGS = -std=c++17 $(ENGINE_OPT) -Wall -Wextra -Wshadow -Wno-deprecated-declarations -fno-strict-aliasing -fstack-protector-strong -pthread \
	-MMD -MP $(ENGINE_EXTRA) $(shell $(PKG_CONFIG) --cflags sentencepiece)
# See src/engine/shortage.h.
ENGINE_WRAP = -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup
# Since SentencePiece 0.2.2 the status of its functions is Abseil's; before, that is not needed if it is here.
SENTENCEPIECE_LIBS := -lsentencepiece -Wl,--as-needed $(shell $(PKG_CONFIG) --silence-errors --libs absl_status) -Wl,--no-as-needed
ENGINE_LIBS = $(ENGINE_WRAP) $(shell $(PKG_CONFIG) --libs libpcre2-8 jansson libutf8proc) $(SENTENCEPIECE_LIBS) -lstdc++ -lmd -lm -pthread \
	$(ENGINE_EXTRA)

ENGINE_SOURCES = $(sort $(wildcard src/engine/*.c) $(wildcard src/protocol/*.c))
ENGINE_OBJS = $(patsubst src/%.c,$(BUILD)/%.o,$(ENGINE_SOURCES)) $(BUILD)/engine/sentencepiece_shim.o
ENGINE_LIBRARY_OBJS = $(filter-out $(BUILD)/engine/main.o,$(ENGINE_OBJS))
ifneq ($(filter x86_64 amd64,$(shell uname -m)),)
$(BUILD)/engine/kernels_avx2.o: ENGINE_ISA = -mavx2 -mfma -mf16c
$(BUILD)/engine/kernels_avx512.o: ENGINE_ISA = -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
endif

engine: $(BUILD)/hymt-engine

$(BUILD)/%.o: src/%.c
	@mkdir -p $(@D)
	$(ENGINE_CC) $(ENGINE_CFLAGS) $(ENGINE_ISA) -c -o $@ $<

$(BUILD)/%.o: src/%.cc
	@mkdir -p $(@D)
	$(ENGINE_CXX) $(ENGINE_CXXFLAGS) -c -o $@ $<

$(BUILD)/hymt-engine: $(ENGINE_OBJS)
	$(ENGINE_CC) $(ENGINE_CFLAGS) -o $@ $^ $(ENGINE_LIBS)

install-engine: engine
	$(MKDIR_P) '$(DESTDIR)$(pkglibdir)' '$(DESTDIR)$(datadir)/hymt/models/demo'
	$(INSTALL_PROGRAM) $(BUILD)/hymt-engine '$(DESTDIR)$(pkglibdir)/hymt-engine'
	$(INSTALL_DATA) $(filter-out %/reference.jsonl %/heldout.jsonl,$(wildcard models/demo/*)) '$(DESTDIR)$(datadir)/hymt/models/demo/'

uninstall: uninstall-engine
uninstall-engine:
	rm -f '$(DESTDIR)$(pkglibdir)/hymt-engine'
	rm -rf '$(DESTDIR)$(datadir)/hymt'

# --- test programs -----------------------------------------------------------------------------------------------

UNIT_TESTS = $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(sort $(wildcard tests/unit/test_*.c)))
MOCK_ENGINE = $(BUILD)/tests/hymt-mock-engine

test-programs: $(UNIT_TESTS) $(if $(wildcard tests/mock/*.c),$(MOCK_ENGINE))

# cmocka 2 calls assertions deprecated whose successors cmocka 1 does not have.
$(BUILD)/tests/test_%: tests/unit/test_%.c $(ENGINE_LIBRARY_OBJS)
	@mkdir -p $(@D)
	$(ENGINE_CC) $(ENGINE_CFLAGS) -Wno-deprecated-declarations -Isrc/engine -o $@ $< $(ENGINE_LIBRARY_OBJS) -lcmocka $(ENGINE_LIBS)

# The TAP tests run it in the engine's place.
installcheck: $(MOCK_ENGINE)

$(MOCK_ENGINE): $(wildcard tests/mock/*.c) $(patsubst src/%.c,$(BUILD)/%.o,$(wildcard src/protocol/*.c))
	@mkdir -p $(@D)
	$(ENGINE_CC) $(ENGINE_CFLAGS) -Isrc/protocol -o $@ $(filter %.c %.o,$^)

check-engine: engine test-programs
	tests/check-engine

# Whatever a sanitizer finds ends the program, and so fails its test.
SANITIZE = -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer

check-sanitize:
	$(MAKE) BUILD=build/sanitize ENGINE_OPT='-O1 -g' ENGINE_EXTRA='$(ENGINE_EXTRA) $(SANITIZE)' engine test-programs
	HYMT_BUILD=build/sanitize HYMT_SANITIZED=1 tests/check-engine

# --- fuzzing -----------------------------------------------------------------------------------------------------

# Each tests/fuzz/fuzz_NAME.c is a target of libFuzzer, tests/fuzz/seeds_NAME.py what it starts from. Files are not
# mapped but read into memory of their exact size, so that every byte read behind them is noticed.
FUZZ_RUNS ?= 20000
FUZZ_FLAGS = $(SANITIZE) -fsanitize=fuzzer-no-link
FUZZ_TARGETS = $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(sort $(wildcard tests/fuzz/fuzz_*.c)))

fuzz-programs: $(FUZZ_TARGETS)

FUZZ_SHARED = tests/fuzz/support.c tests/fuzz/readers.c

$(BUILD)/fuzz/fuzz_%: tests/fuzz/fuzz_%.c $(FUZZ_SHARED) $(FUZZ_SHARED:.c=.h) $(ENGINE_LIBRARY_OBJS)
	@mkdir -p $(@D)
	$(ENGINE_CC) $(filter-out -Dmmap% -Dmunmap%,$(ENGINE_CFLAGS)) -fsanitize=fuzzer -fsanitize-link-c++-runtime -Isrc/engine -o $@ $< \
		$(FUZZ_SHARED) $(ENGINE_LIBRARY_OBJS) $(ENGINE_LIBS)

check-fuzz:
	$(MAKE) BUILD=build/fuzz ENGINE_CC=clang ENGINE_OPT='-O1 -g' \
		ENGINE_EXTRA='$(FUZZ_FLAGS) -Dmmap=fuzz_mmap -Dmunmap=fuzz_munmap' fuzz-programs
	tests/fuzz/run build/fuzz/fuzz $(FUZZ_RUNS)

# What of the files that read untrusted input the seeds alone reach. Needs Debian's llvm.
fuzz-coverage:
	$(MAKE) BUILD=build/coverage ENGINE_CC=clang ENGINE_OPT='-O0 -g' \
		ENGINE_EXTRA='-fsanitize=fuzzer-no-link -fprofile-instr-generate -fcoverage-mapping -Dmmap=fuzz_mmap -Dmunmap=fuzz_munmap' \
		fuzz-programs
	tests/fuzz/coverage build/coverage/fuzz

-include $(wildcard $(BUILD)/*/*.d $(BUILD)/tests/*.d)
