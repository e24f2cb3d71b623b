# How far statements have come: hymt_stat_progress while they run and after they ended in every way, and the NOTICEs.
#
# A text "mock:hold FILE" is answered when FILE exists: until then its statement stands still, and numbers are exact. With
# hymt.read_ahead_rows = 1 the texts are, too.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $node = hymt_node('progress', model => 'mock-step-1-64', conf => <<'END');
statement_timeout = '120s'
max_worker_processes = 16
END
my $held = 0;

$node->safe_psql('postgres', <<'END');
CREATE TABLE t (id int PRIMARY KEY, title text, en text);
INSERT INTO t SELECT g, 'title ' || g FROM generate_series(1, 100) g;
CREATE TABLE p (LIKE t) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (31);
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (31) TO (1000);
CREATE TABLE news (title text, en text);
CREATE TRIGGER translate BEFORE INSERT ON news FOR EACH ROW EXECUTE FUNCTION hymt_translate_trigger('title', 'en', 'zh', 'en');
CREATE PROCEDURE rows_and_commits(file text) LANGUAGE plpgsql AS $$
DECLARE r record;
BEGIN
	PERFORM hymt_translate('before', 'zh', 'en');
	COMMIT;
	PERFORM hymt_translate('mock:hold ' || file, 'zh', 'en');
END $$;
CREATE FUNCTION afterwards() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	en text;
BEGIN
	en := hymt_translate(new.title, 'zh', 'en');
	RETURN NULL;
END $$;
CREATE TABLE watched (title text);
CREATE TRIGGER afterwards AFTER INSERT ON watched FOR EACH ROW EXECUTE FUNCTION afterwards();
CREATE TABLE deferred (title text);
CREATE CONSTRAINT TRIGGER afterwards AFTER INSERT ON deferred DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION afterwards();
CREATE FUNCTION one(file text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT hymt_translate('mock:hold ' || file, 'zh', 'en'));
END $$;
ANALYZE;
END

sub new_file
{
	return $node->basedir . '/held-' . ++$held;
}

# A view of the table in which row number $row is held by $file.
sub title_held
{
	my ($file, $row) = @_;

	return "CASE id WHEN $row THEN 'mock:hold $file' ELSE title END";
}

my $shown = 'command, rows_total, rows_done, texts, failed';

# Starts the SQL, waits until its one row is as expected, lets it go on, and looks that nothing is left of it.
sub shows
{
	my ($name, $file, $sql, $expected, $columns) = @_;
	my $session = background($node, $sql);

	$columns //= $shown;
	ok(wait_until($node, "SELECT $columns FROM hymt_stat_progress", $expected), "$name: while it is held");
	append_to_file($file, '');
	is(finish($session)->{err}, '', "$name: it ends well");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM hymt_stat_progress'), '0', "$name: nothing is left");
	return $session;
}

# --- numbers -------------------------------------------------------------------------------------------------------

scenario 'exact numbers of each kind of statement' => sub {
	my $file = new_file();
	my $one = "SET hymt.read_ahead_rows = 1;\n";
	shows('SELECT', $file, $one . 'SELECT hymt_translate(x.t, \'zh\', \'en\') FROM (SELECT ' . title_held($file, 50) . ' AS t FROM t ORDER BY id OFFSET 0) AS x',
		'SELECT|100|49|50|0');
	$file = new_file();
	shows('a node that has returned all rows', $file, "SELECT hymt_translate(title, 'zh', 'en') FROM t UNION ALL SELECT hymt_translate('mock:hold $file', 'zh', 'en')", 'SELECT|101|100|101|0');
	$file = new_file();
	shows('the same, with equal texts', $file, "SELECT hymt_translate('the same', 'zh', 'en') FROM t UNION ALL SELECT hymt_translate('mock:hold $file', 'zh', 'en')", 'SELECT|101|100|3|0');
	$file = new_file();
	shows('with LIMIT', $file, $one . 'SELECT hymt_translate(x.t, \'zh\', \'en\') FROM (SELECT ' . title_held($file, 11) . ' AS t FROM t ORDER BY id OFFSET 0) AS x LIMIT 15 OFFSET 5',
		'SELECT|20|10|11|0');
	$file = new_file();
	shows('UPDATE', $file, $one . "UPDATE t SET en = hymt_translate(x.t, 'zh', 'en', on_error => 'null') FROM (SELECT id, CASE WHEN id < 4 THEN 'mock:fail language' ELSE " . title_held($file, 30) .
		" END AS t FROM t ORDER BY id OFFSET 0) AS x WHERE x.id = t.id AND x.id <= 30", 'UPDATE|29', "command, rows_done");
	is($node->safe_psql('postgres', 'SELECT count(en) FROM t'), '27', 'UPDATE: rows');
	$file = new_file();
	shows('failures', $file, "SELECT hymt_translate(x.t, 'zh', 'en', on_error => 'null') FROM (SELECT CASE WHEN id % 10 = 1 THEN 'mock:fail language' WHEN id = 50 THEN 'mock:hold $file' ELSE 'title' || id END AS t FROM t ORDER BY id OFFSET 0) AS x",
		'SELECT|100|49|5', 'command, rows_total, rows_done, failed');
	$file = new_file();
	$node->safe_psql('postgres', 'INSERT INTO p SELECT id, ' . title_held($file, 40) . ' FROM t; ANALYZE p');
	shows('partitions', $file, $one . "SELECT hymt_translate(title, 'zh', 'en') FROM p", 'SELECT|100|39|40|0');
	$file = new_file();
	shows('one call', $file, "SELECT hymt_translate('mock:hold $file', 'zh', 'en')", 'SELECT|||1|0');
	$file = new_file();
	shows('an array', $file, "SELECT hymt_translate(ARRAY['a', 'b', 'a', '12', 'mock:hold $file'], 'zh', 'en')", 'SELECT|3|2|3|0');
	$file = new_file();
	shows('several arrays', $file, "SELECT hymt_translate(ARRAY[title, 'b' || id, CASE id WHEN 3 THEN 'mock:hold $file' ELSE 'c' END], 'zh', 'en') FROM t WHERE id <= 5 ORDER BY id",
		'SELECT||8|9|0');
	$file = new_file();
	shows('a trigger', $file, "INSERT INTO news SELECT " . title_held($file, 7) . " FROM t ORDER BY id LIMIT 10", 'INSERT|||7|0');
	$file = new_file();
	append_to_file("$file.csv", join '', map { $_ == 4 ? "mock:hold $file\n" : "news $_\n" } 1 .. 6);
	shows('COPY', $file, "COPY news (title) FROM '$file.csv'", 'COPY|||4|0');
	$file = new_file();
	shows('a function', $file, "SELECT one('$file')", 'SELECT|1', 'command, texts');
	$file = new_file();
	shows('an AFTER trigger', $file, "INSERT INTO watched VALUES ('first'), ('mock:hold $file'), ('last')", 'INSERT|||2|0');
	$file = new_file();
	shows('a deferred trigger', $file, "INSERT INTO deferred VALUES ('first'), ('mock:hold $file'), ('last')", '|||2|0');
	$file = new_file();
	shows('a deferred trigger and COMMIT', $file, "BEGIN; INSERT INTO deferred VALUES ('first'), ('mock:hold $file'); COMMIT", '|||2|0');
	$file = new_file();
	shows('the planner', $file, "SELECT count(*) FROM t WHERE title < hymt_translate('mock:hold $file', 'zh', 'en')", '1', 'texts');
	$file = new_file();
	shows('a procedure that commits', $file, "CALL rows_and_commits('$file')", 'CALL|2', 'command, texts');
	$file = new_file();
	shows('CREATE TABLE AS', $file, $one . "CREATE TABLE made AS SELECT hymt_translate(x.t, 'zh', 'en') FROM (SELECT " . title_held($file, 100) . ' AS t FROM t ORDER BY id OFFSET 0) AS x',
		'CREATE TABLE AS|100|99|100|0');
	$file = new_file();
	shows('other columns', $file, "SELECT hymt_translate(x.t, 'zh', 'en') FROM (SELECT " . title_held($file, 50) . ' AS t FROM t ORDER BY id OFFSET 0) AS x',
		't|t|t|t|t|t', "leader_pid IS NULL, pid IN (SELECT pid FROM pg_stat_activity WHERE query LIKE '%held%' AND pid <> pg_backend_pid()), " .
		"(database, role) = (current_database(), current_user), started <= updated AND updated <= clock_timestamp(), rows_per_second > 0, remaining > '0' AND rows_done = 49");
};

scenario 'cursors: only while a fetch runs' => sub {
	my $file = new_file();
	my $session = background($node, "SET hymt.read_ahead_rows = 1; BEGIN; DECLARE c CURSOR FOR SELECT hymt_translate(x.t, 'zh', 'en') FROM (SELECT CASE id WHEN 5 THEN 'mock:hold $file' ELSE title END AS t FROM t ORDER BY id OFFSET 0) AS x;\n" .
		"FETCH 20 FROM c;\nSELECT count(*) FROM hymt_stat_progress;\nFETCH 20 FROM c; COMMIT");

	ok(wait_until($node, "SELECT command, rows_total, rows_done, texts FROM hymt_stat_progress", 'FETCH|100|4|5'), 'in the first fetch');
	append_to_file($file, '');
	finish($session);
	is($session->{err}, '', 'it ends well');
	like($session->{out}, qr/title 20\n0\n/, 'between them nothing is shown');
	is(scalar(grep { /title|released/ } split /\n/, $session->{out}), 40, 'all rows');
};

scenario 'parallel plans: each process for itself' => sub {
	my $file = new_file();
	$node->safe_psql('postgres', "CREATE TABLE wide AS SELECT g AS id, 'mock:hold $file' || E'\\n' || g AS title, repeat('x', 1000) AS pad FROM generate_series(1, 600) g; ANALYZE wide");
	my $session = background($node, 'SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; ' .
		"SELECT count(en) FROM (SELECT hymt_translate(title, 'zh', 'en') AS en FROM wide OFFSET 0) AS x");
	my $pid = session_pid($node, $session);

	ok(wait_until($node, "SELECT count(*) > 1, bool_and(pid = $pid OR leader_pid = $pid), bool_and(command = 'SELECT' AND rows_done = 0 AND texts > 0), max(rows_total) FROM hymt_stat_progress", 't|t|t|250'),
		'leader and workers have rows of their own, and the planner\'s share of rows for each');
	append_to_file($file, '');
	is(finish($session)->{out}, '600', 'it ends well');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM hymt_stat_progress'), '0', 'nothing is left');
};

# --- ends ----------------------------------------------------------------------------------------------------------

scenario 'nothing is left, however a statement ends' => sub {
	my $identity = server_identity($node);
	my %end = (
		'cancelled' => 'SELECT pg_cancel_backend(pid) FROM hymt_stat_progress',
		'terminated' => 'SELECT pg_terminate_backend(pid) FROM hymt_stat_progress');
	foreach my $how (sort keys %end)
	{
		my $session = background($node, "SELECT hymt_translate(title || 'x', 'zh', 'en'), hymt_translate('mock:hold ' || '/nowhere' || id, 'zh', 'en') FROM t");

		ok(wait_until($node, 'SELECT count(*) FROM hymt_stat_progress', '1'), "$how: it runs");
		$node->safe_psql('postgres', $end{$how});
		isnt(finish($session)->{err}, '', "$how: it fails");
		ok(wait_until($node, 'SELECT count(*) FROM hymt_stat_progress', '0'), "$how: nothing is left");
	}
	# The view is read by the session that failed itself: first in the same transaction.
	is($node->safe_psql('postgres', <<'END'), "0\n0\n1|0", 'errors inside and of the whole statement');
\set ON_ERROR_STOP 0
BEGIN;
SAVEPOINT s;
\set VERBOSITY sqlstate
SELECT hymt_translate('mock:fail language', 'zh', 'en');
ROLLBACK TO s;
SELECT count(*) FROM hymt_stat_progress;
COMMIT;
SELECT hymt_translate('mock:fail language', 'zh', 'en');
SELECT count(*) FROM hymt_stat_progress;
CREATE FUNCTION caught() RETURNS text LANGUAGE plpgsql AS $$
DECLARE seen text;
BEGIN
	PERFORM hymt_translate('before', 'zh', 'en');
	BEGIN
		PERFORM hymt_translate('mock:fail language', 'zh', 'en');
	EXCEPTION WHEN OTHERS THEN
		SELECT count(*) || '|' || sum(failed) INTO seen FROM hymt_stat_progress;
	END;
	RETURN seen;
END $$;
SELECT caught();
END
	is_undisturbed($node, $identity, 'all of it');
};

scenario 'rights' => sub {
	my $file = new_file();
	$node->safe_psql('postgres', 'CREATE ROLE reader LOGIN; CREATE ROLE watcher LOGIN IN ROLE pg_monitor; CREATE ROLE asker LOGIN; ' .
		'GRANT SELECT ON hymt_stat_progress TO reader, asker; GRANT EXECUTE ON FUNCTION hymt_stat_progress() TO reader, asker; ' .
		'GRANT EXECUTE ON FUNCTION hymt_translate(text, text, text, text, text, text, text, jsonb) TO asker');
	my $session = background($node, "SET SESSION AUTHORIZATION asker; SELECT hymt_translate('mock:hold $file', 'zh', 'en')");
	my %sees = (reader => 't|||', watcher => 't|asker|SELECT|1', asker => 't|asker|SELECT|1');

	ok(wait_until($node, 'SELECT texts FROM hymt_stat_progress', '1'), 'it runs');
	is($node->safe_psql('postgres', "SET ROLE $_; SELECT pid IS NOT NULL, role, command, texts FROM hymt_stat_progress"), $sees{$_}, $_)
	  foreach sort keys %sees;
	append_to_file($file, '');
	finish($session);
	$node->safe_psql('postgres', 'DROP OWNED BY reader, watcher, asker; DROP ROLE reader, watcher, asker');
};

# --- NOTICEs -------------------------------------------------------------------------------------------------------

# What a session says that is held until it says what is expected: each NOTICE may be early on a slow machine, but others
# follow. Without an expectation it is held for longer than the first NOTICE takes to come.
sub notices
{
	my ($setting, $file, $sql, $expected) = @_;
	my $script = $node->basedir . '/notices.sql';
	my ($out, $err) = ('', '');
	my $until = time + HymtTest::LIMIT_SECONDS;

	unlink $script;
	append_to_file($script, "SET hymt.progress = $setting;\nSET hymt.read_ahead_rows = 1;\n$sql;\n");
	my $run = IPC::Run::start([ 'psql', '-XAtq', '-f', $script, '-d', $node->connstr('postgres') ], '>', \$out, '2>', \$err);
	if (defined $expected)
	{
		while ($err !~ $expected && time < $until && $run->pumpable)
		{
			$run->pump_nb;
			usleep(20_000);
		}
	}
	else
	{
		wait_until($node, "SELECT clock_timestamp() > started + '3 seconds' FROM hymt_stat_progress", 't');
	}
	append_to_file($file, '');
	$run->finish;
	like($err, $expected, "it says $expected") if defined $expected;
	return $err;
}

scenario 'NOTICEs' => sub {
	my $file = new_file();
	$node->safe_psql('postgres', 'CREATE TABLE big AS SELECT id, ' . title_held($file, 900) . " AS title, NULL::text AS en FROM (SELECT g AS id, 'title ' || g AS title FROM generate_series(1, 1000) g) AS x; ANALYZE big");
	notices('on', $file, "UPDATE big SET en = hymt_translate(title, 'zh', 'en')",
		qr/NOTICE:  hymt: 899 of about 1,000 rows, [\d,.]+ rows\/s, 900 texts; about [\d,]+ s left\n/);
	is($node->safe_psql('postgres', "SELECT count(*) FROM big WHERE en = 'zh>en: ' || title"), '999', 'an UPDATE goes on');
	$file = new_file();
	is(notices('off', $file, "SELECT hymt_translate('mock:hold $file', 'zh', 'en')"), '', 'none without the setting');
	$file = new_file();
	my $said = notices('on', $file, "SELECT one('$file')", qr/NOTICE:  hymt: 1 text, 0\.\d texts\/s\n/);
	unlike($said, qr/CONTEXT|held/, 'of a function, and nothing of what it is about');
	$file = new_file();
	is(notices('on', $file, "SET client_min_messages = warning; SELECT hymt_translate('mock:hold $file', 'zh', 'en')"), '', 'client_min_messages');
	$file = new_file();
	notices('on', $file, "SELECT hymt_translate(ARRAY['a', 'b', 'mock:hold $file', 'c'], 'zh', 'en')",
		qr/NOTICE:  hymt: 3 of about 4 rows, [\d.]+ rows\/s, 4 texts; about \d+ s left\n/);
	$file = new_file();
	notices('on', $file, "SELECT hymt_translate(ARRAY['a' || id, 'mock:hold $file'], 'zh', 'en') FROM t WHERE id <= 2",
		qr/NOTICE:  hymt: 1 of about 2 rows, [\d.]+ rows\/s, 2 texts; about \d+ s left\n/);
	unlike(slurp_file($node->logfile), qr/hymt: [0-9,]+ (of|rows?|texts?)/, 'nothing in the log');
};

$node->stop;
done_testing();
