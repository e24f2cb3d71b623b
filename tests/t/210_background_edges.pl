# What background work must bear: a transaction that fails after it has claimed more than there is room for, a schema that
# is renamed, databases that are half dropped, or asked for by somebody who may not have them.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use HymtTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = hymt_node('edges', conf => "hymt.cache = on\nhymt.cache_memory = 0\nrestart_after_crash = off\n");

my $worker = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'hymt database worker' AND datname = 'postgres'";

# A worker that fails has results of a full load of jobs, and as many new ones, when its transaction is rolled back. Numbers
# need no model: such a job has its end when it is claimed.
$node->safe_psql('postgres', <<'END');
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'refused' USING ERRCODE = 'disk_full';
END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON hymt_job FOR EACH ROW
	WHEN (NEW.priority = 1 AND NEW.state = 'running') EXECUTE FUNCTION refuse();
END
my $log = -s $node->logfile;
$node->safe_psql('postgres', <<'END');
SELECT count(hymt_submit('4711', 'en', 'zh', options => CASE WHEN n > 480 THEN '{"priority": "bulk"}'::jsonb END))
FROM generate_series(1, 500) AS n;
END
for (1 .. 2)
{
	$log = $node->wait_for_log(qr/refused/, $log);
}
$node->safe_psql('postgres', 'DROP TRIGGER refuse ON hymt_job');
ok(wait_until($node, "SELECT count(*) FROM hymt_job WHERE state = 'done' AND translation = '4711'", '500'),
	'a transaction that fails after many claims is repeated until it does not');

# The statements of a session follow the table, and do not take another one for it.
$node->safe_psql('postgres', 'CREATE DATABASE renamed');
my ($status, $out, $err) = $node->psql('renamed', <<'END');
CREATE SCHEMA home;
CREATE EXTENSION hymt SCHEMA home;
SELECT home.hymt_submit('1', 'en', 'zh') IS NOT NULL;
ALTER SCHEMA home RENAME TO moved;
CREATE SCHEMA home;
CREATE TABLE home.hymt_job (LIKE moved.hymt_job INCLUDING ALL);
SELECT moved.hymt_submit('2', 'en', 'zh') IS NOT NULL;
SELECT count(*) FROM home.hymt_job;
SELECT count(*) FROM moved.hymt_job WHERE source = '2';
END
is("$status $out $err", "0 t\nt\n0\n1 ", 'jobs go to the table of the extension, wherever its schema has gone');

# Somebody who may create databases, but no copy of this one, does not disturb its worker.
$node->safe_psql('postgres', 'CREATE ROLE maker LOGIN CREATEDB');
my $file = $node->basedir . '/release';
$node->safe_psql('postgres', "SELECT hymt_submit('mock:hold $file', 'zh', 'en')");
ok(wait_until($node, "SELECT count(*) FROM hymt_job WHERE state = 'running'", '1'), 'a job is being made');
my $before = $node->safe_psql('postgres', $worker);
$node->psql('postgres', 'CREATE DATABASE copy TEMPLATE postgres', extra_params => [ '-U', 'maker' ], stderr => \$err);
like($err, qr/permission denied to copy database/, 'a database cannot be copied by anybody');
is($node->safe_psql('postgres', $worker), $before, 'and its worker stays');
append_to_file($file, '');

# DROP DATABASE that was interrupted leaves a database to which nobody can connect.
$node->safe_psql('postgres', "UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'renamed'");
$log = -s $node->logfile;
$node->restart;
my $job = $node->safe_psql('postgres', "SELECT hymt_submit('14', 'en', 'zh')");
is($node->safe_psql('postgres', "SELECT hymt_wait($job, '60 s')"), '14', 'jobs are made');
unlike(slurp_file($node->logfile, $log), qr/invalid database/, 'nobody tries to connect to a database that is half dropped');

$node->stop;
done_testing();
