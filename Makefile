# hymt: translation inside PostgreSQL.
#
#   make                    the extension (hymt.so) and the engine program (build/hymt-engine)
#   make install            both, the SQL scripts and the demo model
#   make installcheck       pg_regress, isolation and TAP tests against an installed hymt
#   make installcheck-read-ahead-off   the first two of these without reading ahead
#   make check-engine       engine unit tests and reference vectors; needs no PostgreSQL
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

.PHONY: installcheck-read-ahead-off engine install-engine uninstall-engine regress-folder check-engine test-programs

sql/hymt--$(EXTVERSION).sql: sql/hymt.sql
	cp $< $@

regress-folder:
	@mkdir -p build/regress
	@ln -sfn ../../sql-tests build/regress/sql
	@ln -sfn ../../expected build/regress/expected
	@ln -sfn ../../tests/specs build/regress/specs

# --- the engine program ------------------------------------------------------------------------------------------

# No contraction, no fast-math: every device of a class must give the same bits (doc/numerics.md).
ENGINE_CC ?= $(CC)
ENGINE_OPT ?= -O2 -g
ENGINE_CFLAGS = -std=gnu11 $(ENGINE_OPT) -Wall -Wextra -Wshadow -Wmissing-prototypes -ffp-contract=off -fno-strict-aliasing \
	-fstack-protector-strong -pthread -MMD -MP -DHYMT_VERSION='"$(EXTVERSION)"' $(ENGINE_EXTRA) \
	$(shell $(PKG_CONFIG) --cflags libpcre2-8 jansson libutf8proc)
ENGINE_LIBS = $(shell $(PKG_CONFIG) --libs libpcre2-8 jansson libutf8proc) -lmd -lm -pthread $(ENGINE_EXTRA)

ENGINE_SOURCES = $(sort $(wildcard src/engine/*.c) $(wildcard src/protocol/*.c))
ENGINE_OBJS = $(patsubst src/%.c,build/%.o,$(ENGINE_SOURCES))
ENGINE_LIBRARY_OBJS = $(filter-out build/engine/main.o,$(ENGINE_OBJS))
ifneq ($(filter x86_64 amd64,$(shell uname -m)),)
build/engine/kernels_avx2.o: ENGINE_ISA = -mavx2 -mfma -mf16c
build/engine/kernels_avx512.o: ENGINE_ISA = -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
endif

engine: build/hymt-engine

build/%.o: src/%.c
	@mkdir -p $(@D)
	$(ENGINE_CC) $(ENGINE_CFLAGS) $(ENGINE_ISA) -c -o $@ $<

build/hymt-engine: $(ENGINE_OBJS)
	$(ENGINE_CC) $(ENGINE_CFLAGS) -o $@ $^ $(ENGINE_LIBS)

install-engine: engine
	$(MKDIR_P) '$(DESTDIR)$(pkglibdir)' '$(DESTDIR)$(datadir)/hymt/models/demo'
	$(INSTALL_PROGRAM) build/hymt-engine '$(DESTDIR)$(pkglibdir)/hymt-engine'
	$(INSTALL_DATA) $(filter-out %/reference.jsonl %/heldout.jsonl,$(wildcard models/demo/*)) '$(DESTDIR)$(datadir)/hymt/models/demo/'

uninstall: uninstall-engine
uninstall-engine:
	rm -f '$(DESTDIR)$(pkglibdir)/hymt-engine'
	rm -rf '$(DESTDIR)$(datadir)/hymt'

# --- test programs -----------------------------------------------------------------------------------------------

UNIT_TESTS = $(patsubst tests/unit/%.c,build/tests/%,$(sort $(wildcard tests/unit/test_*.c)))
MOCK_ENGINE = build/tests/hymt-mock-engine

test-programs: $(UNIT_TESTS) $(if $(wildcard tests/mock/*.c),$(MOCK_ENGINE))

build/tests/test_%: tests/unit/test_%.c $(ENGINE_LIBRARY_OBJS)
	@mkdir -p $(@D)
	$(ENGINE_CC) $(ENGINE_CFLAGS) -Isrc/engine -o $@ $< $(ENGINE_LIBRARY_OBJS) -lcmocka $(ENGINE_LIBS)

# The TAP tests run it in the engine's place.
installcheck: $(MOCK_ENGINE)

$(MOCK_ENGINE): $(wildcard tests/mock/*.c) $(patsubst src/%.c,build/%.o,$(wildcard src/protocol/*.c))
	@mkdir -p $(@D)
	$(ENGINE_CC) $(ENGINE_CFLAGS) -Isrc/protocol -o $@ $(filter %.c %.o,$^)

check-engine: engine test-programs
	tests/check-engine

-include $(wildcard build/*/*.d build/tests/*.d)
