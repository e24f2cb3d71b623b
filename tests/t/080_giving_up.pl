# Sessions leave in every way there is while the engine sleeps half a minute; databases and the extension come and go
# meanwhile; a standby server gives way to recovery, and is promoted, without losing a request.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $node = hymt_node(
	'giving_up',
	init => [ allows_streaming => 1 ],
	conf => <<'END');
hymt.queue_slots = 8
max_prepared_transactions = 10
max_standby_streaming_delay = 0
max_parallel_workers_per_gather = 4
max_worker_processes = 16
min_parallel_table_scan_size = 0
parallel_setup_cost = 0
parallel_tuple_cost = 0
END
my $identity = server_identity($node);
my $sleep = translate('mock:sleep 30');
my $in_use = 'SELECT slots_in_use FROM hymt_status';

# What ends a wait does so promptly. $sql waits; it occupies so many slots; $end is given the process and the session.
sub is_ended
{
	my ($name, %case) = @_;
	my $on = $case{node} // $node;
	my $session = background($on, $case{sql} // $sleep, database => $case{database});
	my $pid = session_pid($on, $session);

	wait_for_slots($on, $case{slots} // 1);
	my $since = time;
	$case{end}->($pid, $session);
	wait_for_end($pid) if $case{client_is_gone};
	finish($session);
	my $took = time - $since;
	like($session->{err}, $case{expected}, "$name: the session is told") if defined $case{expected};
	cmp_ok($took, '<', PROMPT_SECONDS, sprintf('%s: after %.0f ms', $name, $took * 1000));
	return $session;
}

sub cancel
{
	my ($pid) = @_;

	return $node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
}

sub terminate
{
	my ($pid) = @_;

	return $node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
}

# A statement that must not wait for anybody's translation.
sub is_prompt
{
	my ($database, $statement) = @_;
	my $since = time;
	my ($code, undef, $err) =
		$node->psql($database, $statement, extra_params => [ '-v', 'ON_ERROR_STOP=1' ], timeout => 30);
	my $took = time - $since;

	is($code, 0, "$statement: succeeds") or diag($err);
	# Databases are copied and the machine may be busy; a wait for the engine would take 30 s.
	cmp_ok($took, '<', 15, sprintf('%s: after %.0f ms', $statement, $took * 1000));
	return;
}

# --- what a wait can be the middle of -----------------------------------------------------------------------------

my $nested = <<'END';
DO $$
BEGIN
	BEGIN
		BEGIN
			PERFORM hymt_translate('mock:sleep 30', 'zh', 'en');
		EXCEPTION WHEN division_by_zero THEN RAISE;
		END;
	EXCEPTION WHEN OTHERS THEN NULL;
	END;
END $$;
END
scenario 'a wait in nested subtransactions' => sub {
	is_ended('terminate', sql => $nested, end => \&terminate, expected => qr/FATAL:  57P01/);
	is_ended('cancel', sql => $nested, end => \&cancel, expected => qr/ERROR:  57014/);
};

scenario 'a wait in a cursor, a trigger and an update' => sub {
	is_ended(
		'cursor',
		sql => <<'END', end => \&cancel, expected => qr/ERROR:  57014/);
BEGIN;
DECLARE c CURSOR FOR SELECT hymt_translate(t, 'zh', 'en') FROM unnest(ARRAY['one', 'mock:sleep 30']) AS t;
FETCH 1 FROM c;
FETCH 1 FROM c;
END
	$node->safe_psql('postgres', <<'END');
CREATE TABLE titles (title text, title_en text);
CREATE TRIGGER translate_title BEFORE INSERT OR UPDATE ON titles FOR EACH ROW
  EXECUTE FUNCTION hymt_translate_trigger('title', 'title_en', 'zh', 'en');
INSERT INTO titles VALUES ('one');
END
	is_ended(
		'trigger',
		sql => "INSERT INTO titles VALUES ('two'), ('mock:sleep 30')",
		end => \&terminate,
		expected => qr/FATAL:  57P01/);
	is_ended('update', sql => "UPDATE titles SET title = 'mock:sleep 30'", end => \&cancel, expected => qr/ERROR:  57014/);
	is($node->safe_psql('postgres', 'SELECT * FROM titles'), 'one|zh>en: one', 'nothing was changed');
};

scenario 'a wait for a free slot' => sub {
	my @sleepers = map { background($node, $sleep) } 1 .. 8;

	wait_for_slots($node, 8);
	is_ended('terminate', slots => 8, end => \&terminate, expected => qr/FATAL:  57P01/);
	is_ended('cancel', slots => 8, end => \&cancel, expected => qr/ERROR:  57014/);
	is_ended(
		'vanished client',
		slots => 8,
		client_is_gone => 1,
		end => sub { $_[1]->{run}->kill_kill });
	is(status($node, 'slots_in_use'), '8', 'the others still wait');
	terminate(session_pid($node, $_)) foreach @sleepers;
	finish($_) foreach @sleepers;
};

scenario 'parallel workers that wait' => sub {
	my $parallel = <<'END';
SET parallel_leader_participation = off;
SELECT count(hymt_translate(title, 'zh', 'en')) FROM sleepers
END

	$node->safe_psql('postgres', <<'END');
CREATE TABLE sleepers (title text, filler text) WITH (parallel_workers = 4);
INSERT INTO sleepers SELECT 'mock:sleep 30', repeat('x', 1500) FROM generate_series(1, 400);
ANALYZE sleepers;
END
	is_ended('cancel', sql => $parallel, slots => 4, end => \&cancel, expected => qr/ERROR:  57014/);
	is_ended('terminate', sql => $parallel, slots => 4, end => \&terminate, expected => qr/FATAL:  57P01/);
	is_ended(
		'a worker is terminated',
		sql => $parallel,
		slots => 4,
		end => sub {
			terminate($node->safe_psql('postgres', "SELECT min(pid) FROM pg_stat_activity WHERE leader_pid = $_[0]"));
		},
		expected => qr/(ERROR|FATAL):  57P01/);
};

scenario 'timeouts' => sub {
	my @timeouts = ('statement_timeout');

	push @timeouts, 'transaction_timeout' if $node->pg_version >= 17;
	foreach my $timeout (@timeouts)
	{
		my $session = finish(background($node, "SET $timeout = 200; $sleep"));

		like($session->{err}, qr/(57014|25P04)/, "$timeout: the session is told");
		cmp_ok($session->{took}, '<', PROMPT_SECONDS,
			sprintf('%s of 200 ms: after %.0f ms', $timeout, $session->{took} * 1000));
	}
};

# --- what a transaction can do afterwards -------------------------------------------------------------------------

scenario 'portals closed half read' => sub {
	my $session = finish(background($node, <<"END"));
BEGIN;
DECLARE a CURSOR FOR SELECT hymt_translate('row ' || i, 'zh', 'en') FROM generate_series(1, 1000) AS i;
FETCH 2 FROM a;
CLOSE a;
$in_use;
DECLARE b CURSOR FOR SELECT hymt_translate('row ' || i, 'zh', 'en') FROM generate_series(1, 1000) AS i;
SAVEPOINT s;
FETCH 1 FROM b;
DECLARE d CURSOR FOR SELECT hymt_translate('row ' || i, 'zh', 'en') FROM generate_series(1, 1000) AS i;
FETCH 1 FROM d;
ROLLBACK TO s;
FETCH 1 FROM b;
COMMIT;
$in_use;
BEGIN;
DECLARE h CURSOR WITH HOLD FOR SELECT hymt_translate('held ' || i, 'zh', 'en') FROM generate_series(1, 3) AS i;
FETCH 1 FROM h;
COMMIT;
FETCH 1 FROM h;
CLOSE h;
$in_use;
END
	is( $session->{out}, join("\n",
			'zh>en: row 1', 'zh>en: row 2', '0', 'zh>en: row 1', 'zh>en: row 1', 'zh>en: row 2', '0',
			'zh>en: held 1', 'zh>en: held 2', '0'),
		'rows and free slots');
	is($session->{err}, '', 'no error, no warning');
};

scenario 'a cursor left open holds up nobody' => sub {
	my $release = $node->basedir . '/reader_may_go';
	my $reader = background($node, <<"END");
BEGIN;
DECLARE c CURSOR FOR SELECT hymt_translate('row ' || i, 'zh', 'en') FROM generate_series(1, 1000) AS i;
FETCH 1 FROM c;
\\! while [ ! -e $release ]; do sleep 0.05; done
FETCH 1 FROM c;
END

	wait_until(
		$node,
		"SELECT state FROM pg_stat_activity WHERE application_name = '$reader->{name}'",
		'idle in transaction');
	my @others = map { background($node, translate("other $_")) } 1 .. 10;
	is(finish($others[$_ - 1])->{out}, "zh>en: other $_", "session $_ is served") foreach 1 .. 10;
	append_to_file($release, 'now');
	is(finish($reader)->{out}, "zh>en: row 1\nzh>en: row 2", 'the reader goes on');
};

scenario 'nested subtransactions' => sub {
	my $session = finish(background($node, <<"END"));
CREATE FUNCTION nest(depth int) RETURNS text LANGUAGE plpgsql AS \$\$
DECLARE inner_one text;
BEGIN
	IF depth = 0 THEN
		RETURN hymt_translate('mock:fail internal', 'zh', 'en');
	END IF;
	BEGIN
		inner_one := nest(depth - 1);
	EXCEPTION WHEN OTHERS THEN
		inner_one := SQLSTATE || ' ' || hymt_translate('level ' || depth, 'zh', 'en');
		IF depth % 2 = 1 THEN
			RAISE EXCEPTION '%', inner_one;
		END IF;
	END;
	RETURN inner_one;
END \$\$;
SELECT nest(1 + 2 * (i % 3)), slots_in_use FROM generate_series(1, 0) AS i, hymt_status;
SELECT nest(2), nest(4), slots_in_use FROM hymt_status;
BEGIN;
SAVEPOINT a; SELECT hymt_translate('in a', 'zh', 'en');
SAVEPOINT b; SELECT hymt_translate('in b', 'zh', 'en');
RELEASE a;
SAVEPOINT c; SELECT hymt_translate('in c', 'zh', 'en');
ROLLBACK TO c;
COMMIT;
$in_use;
END
	is( $session->{out}, join("\n",
			'P0001 zh>en: level 2|P0001 zh>en: level 2|0', 'zh>en: in a', 'zh>en: in b', 'zh>en: in c', '0'),
		'results');
	is($session->{err}, '', 'no error, no warning');
};

scenario 'two-phase commit' => sub {
	my $session = finish(background($node, <<"END"));
BEGIN;
INSERT INTO titles VALUES ('prepared');
DECLARE c CURSOR FOR SELECT hymt_translate('row ' || i, 'zh', 'en') FROM generate_series(1, 9) AS i;
FETCH 1 FROM c;
PREPARE TRANSACTION 'one';
$in_use;
BEGIN;
INSERT INTO titles VALUES ('forgotten');
PREPARE TRANSACTION 'two';
COMMIT PREPARED 'one';
ROLLBACK PREPARED 'two';
SELECT title_en FROM titles WHERE title <> 'one';
END
	is("$session->{out}$session->{err}", "zh>en: row 1\n0\nzh>en: prepared", 'is translated and committed');
};

# --- never delayed ------------------------------------------------------------------------------------------------

scenario 'databases and the extension while a session of another database waits' => sub {
	my $session = background($node, $sleep);
	my $place = $node->basedir . '/place';

	mkdir $place;
	wait_for_slots($node, 1);
	is_prompt('postgres', 'CREATE DATABASE side');
	is_prompt('side', 'CREATE EXTENSION hymt');
	is($node->safe_psql('side', translate('aside')), 'zh>en: aside', 'the other database translates');
	is_prompt('side', 'ALTER EXTENSION hymt UPDATE');
	is_prompt('postgres', 'CREATE DATABASE copied TEMPLATE side');
	is_prompt('postgres', 'CREATE DATABASE copied_too TEMPLATE side STRATEGY file_copy') if $node->pg_version >= 15;
	is($node->safe_psql('copied', translate('copied')), 'zh>en: copied', 'so does a copy of it');
	is_prompt('postgres', 'ALTER DATABASE copied RENAME TO renamed');
	is_prompt('postgres', "CREATE TABLESPACE place LOCATION '$place'");
	is_prompt('postgres', 'ALTER DATABASE renamed SET TABLESPACE place');
	is_prompt('side', 'DROP EXTENSION hymt');
	is_prompt('side', 'CREATE EXTENSION hymt');
	is_prompt('postgres', 'DROP DATABASE renamed');
	is_prompt('postgres', 'DROP DATABASE IF EXISTS copied_too WITH (FORCE)');
	is_prompt('postgres', 'DROP TABLESPACE place');
	is(status($node, 'slots_in_use'), '1', 'the session still waits');
	cancel(session_pid($node, $session));
	is(finish($session)->{err}, 'ERROR:  57014', 'until it is cancelled');
};

scenario 'a session of the very database' => sub {
	my $session = background($node, $sleep, database => 'side');

	wait_for_slots($node, 1);
	is_prompt('postgres', 'DROP DATABASE side WITH (FORCE)');
	like(finish($session)->{err}, qr/FATAL:  57P01/, 'DROP DATABASE … WITH (FORCE) ends its wait');
};

scenario 'the extension under a waiting session' => sub {
	my $release = $node->basedir . '/extension_was_dropped';

	$node->safe_psql('postgres', 'CREATE DATABASE own');
	$node->safe_psql('own', 'CREATE EXTENSION hymt');
	my $session = background($node, translate("mock:hold $release"), database => 'own');
	wait_for_slots($node, 1);
	is_prompt('own', 'ALTER EXTENSION hymt UPDATE');
	is_prompt('own', 'DROP EXTENSION hymt');
	append_to_file($release, 'now');
	is(finish($session)->{out}, 'released', 'it is answered all the same');

	$session = finish(background($node, <<'END', database => 'own'));
CREATE EXTENSION hymt;
SELECT hymt_translate('first', 'zh', 'en');
DROP EXTENSION hymt;
CREATE EXTENSION hymt;
SELECT hymt_translate('second', 'zh', 'en');
END
	is($session->{out}, "zh>en: first\nzh>en: second", 'dropped and created again in one session');
	is_prompt('postgres', 'DROP DATABASE own');
};

scenario 'updates from every version' => sub {
	my $versions = $node->safe_psql('postgres', <<'END');
SELECT version FROM pg_available_extension_versions WHERE name = 'hymt' ORDER BY version
END

	foreach my $version (split /\n/, $versions)
	{
		$node->safe_psql('postgres', 'CREATE DATABASE updated');
		$node->safe_psql('updated', "CREATE EXTENSION hymt VERSION '$version'");
		is($node->safe_psql('updated', translate('before')), 'zh>en: before', "$version translates");
		my $session = background($node, $sleep, database => 'updated');
		wait_for_slots($node, 1);
		is_prompt('updated', 'ALTER EXTENSION hymt UPDATE');
		cancel(session_pid($node, $session));
		finish($session);
		is($node->safe_psql('updated', translate('after')), 'zh>en: after', "$version was updated");
		$node->safe_psql('postgres', 'DROP DATABASE updated');
	}
};

is_undisturbed($node, $identity, 'so far');

# --- standby ------------------------------------------------------------------------------------------------------

$node->safe_psql('postgres', <<'END');
CREATE TABLE vacuumed AS SELECT 'mock:sleep 30' AS title, i FROM generate_series(1, 10) AS i;
CREATE TABLE dropped AS SELECT 'mock:sleep 30' AS title, i FROM generate_series(1, 10) AS i;
CREATE DATABASE conflict;
END
$node->safe_psql('conflict', 'CREATE EXTENSION hymt');
$node->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('giving_up_standby');
$standby->init_from_backup($node, 'copy', has_streaming => 1);
$standby->start;
watch($standby);
my $standby_identity = server_identity($standby);

scenario 'a standby translates' => sub {
	is($standby->safe_psql('postgres', translate('here')), 'zh>en: here', 'without being able to write');
	is( $standby->safe_psql('postgres', 'BEGIN READ ONLY; ' . translate('read only') . '; COMMIT'),
		'zh>en: read only', 'in a read-only transaction');
	isnt(status($standby, 'engine_pid'), status($node, 'engine_pid'), 'it has an engine of its own');
};

scenario 'conflicts with recovery' => sub {
	$node->wait_for_catchup($standby);
	is_ended(
		'rows are vacuumed',
		node => $standby,
		sql => "SELECT hymt_translate(title, 'zh', 'en') FROM vacuumed",
		end => sub { $node->safe_psql('postgres', $_) foreach ('DELETE FROM vacuumed', 'VACUUM vacuumed') },
		expected => qr/ERROR:  40001/);
	is_ended(
		'a table is dropped',
		node => $standby,
		sql => "SELECT hymt_translate(title, 'zh', 'en') FROM dropped",
		end => sub { $node->safe_psql('postgres', 'DROP TABLE dropped') },
		expected => qr/ERROR:  40001/);
	is_ended(
		'a database is dropped',
		node => $standby,
		database => 'conflict',
		end => sub { $node->safe_psql('postgres', 'DROP DATABASE conflict') },
		expected => qr/FATAL:  57P04/);
	$node->wait_for_catchup($standby);
	is_undisturbed($standby, $standby_identity, 'conflicts');
};

scenario 'promotion' => sub {
	my $release = $node->basedir . '/was_promoted';
	my $session = background($standby, translate("mock:hold $release"));

	wait_for_slots($standby, 1);
	my $before = status($standby, 'engine_pid, worker_pid, restarts');
	$node->stop('fast');
	$standby->promote;
	is(status($standby, 'slots_in_use'), '1', 'the session still waits');
	append_to_file($release, 'now');
	is(finish($session)->{out}, 'released', 'a call that began on the standby is answered');
	is(status($standby, 'engine_pid, worker_pid, restarts'), $before, 'by the same worker and engine');
	is($standby->safe_psql('postgres', translate('there')), 'zh>en: there', 'the new primary translates');
	is( $standby->safe_psql('postgres', "INSERT INTO titles VALUES ('written') RETURNING title_en"),
		'zh>en: written', 'and writes');
};

$standby->stop;
done_testing();
