# Jobs are made whatever happens: restarts, crashes of server, worker and engine, promotion. Each result is stored once, by
# the attempt that is the last, and no transaction is open meanwhile.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use HymtTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = hymt_node(
	'jobs',
	init => [ allows_streaming => 1 ],
	conf => <<'END');
max_prepared_transactions = 5
hymt.job_attempts = 2
restart_after_crash = on
END

sub submit
{
	my ($text, $more) = @_;

	$text =~ s/'/''/g;
	return "hymt_submit('$text', 'zh', 'en'" . ($more // '') . ')';
}

# In a transaction of its own.
sub new_job
{
	my ($text, $more) = @_;

	return $node->safe_psql('postgres', 'SELECT ' . submit($text, $more));
}

sub result
{
	my ($job) = @_;

	return $node->safe_psql('postgres', "SELECT hymt_wait($job, '60 s')");
}

# Column of a job.
sub is_job
{
	my ($job, $columns, $expected, $name) = @_;

	return is($node->safe_psql('postgres', "SELECT $columns FROM hymt_job WHERE id = $job"), $expected, $name);
}

sub wait_for_state
{
	my ($job, $state) = @_;

	return ok(wait_until($node, "SELECT state FROM hymt_job WHERE id = $job", $state), "job is $state");
}

# A file that requests wait for.
my $files = 0;

sub new_file
{
	return $node->basedir . '/release_' . ++$files;
}

sub wait_for_departure
{
	return ok(wait_until($node, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'hymt database worker'", '0'),
		'the worker leaves when there is nothing more to do');
}

sub database_worker
{
	wait_until($node, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'hymt database worker'", '1');
	return $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'hymt database worker'");
}

scenario 'a job is made after its transaction' => sub {
	my $file = new_file();
	my $job = new_job("mock:hold $file");

	wait_for_state($job, 'running');
	is_job($job, 'attempts, token IS NOT NULL, lease_until > now()', '1|t|t', 'an attempt has a token and a lease');
	is( $node->safe_psql(
			'postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'hymt database worker' AND xact_start IS NULL"),
		'1',
		'no transaction is open while the engine works');
	is($node->safe_psql('postgres', "SELECT hymt_result($job) IS NULL"), 't', 'no result yet');
	is($node->safe_psql('postgres', "SELECT hymt_wait($job, '10 ms') IS NULL"), 't', 'a wait ends with its time');
	is( $node->safe_psql('postgres', "SELECT role FROM hymt_stat_activity"),
		$node->safe_psql('postgres', 'SELECT current_user'),
		"a job's request counts for its owner");
	append_to_file($file, '');
	is(result($job), 'released', 'the result');
	is_job($job, 'state, attempts, token, lease_until', 'done|1||', 'nothing is left of the attempt');
	wait_for_departure();
};

scenario 'several sessions wait' => sub {
	my $file = new_file();
	my $job = new_job("mock:hold $file");
	my $other = new_job('another');
	my @sessions = map { background($node, $_) } (
		"SELECT hymt_wait($job)",
		"BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; SELECT hymt_wait($job); COMMIT",
		"BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT 1; SELECT hymt_wait($job); COMMIT");

	ok(wait_until($node, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%hymt_wait($job)%' AND wait_event_type = 'Extension'", '3'),
		'all wait');
	is(result($other), 'zh>en: another', 'another job is not kept waiting');
	append_to_file($file, '');
	like(finish($_)->{out}, qr/released/, 'the result, which is newer than the snapshot') for @sessions;
};

scenario 'a wait ends by cancel, timeout and the end of its session' => sub {
	my $file = new_file();
	my $job = new_job("mock:hold $file");
	my $session = background($node, "SET statement_timeout = '200 ms'; SELECT hymt_wait($job)");

	is(finish($session)->{err}, 'ERROR:  57014', 'statement_timeout');
	$session = background($node, "SELECT hymt_wait($job)");
	$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . session_pid($node, $session) . ')');
	like(finish($session)->{err}, qr/57P01/, 'terminated');
	append_to_file($file, '');
	like(result($job), qr/released/, 'the job goes on');
};

scenario 'notifications' => sub {
	my ($out) = $node->safe_psql('postgres',
		"LISTEN hymt_job; SELECT " . submit('told') . " AS job \\gset\n SELECT hymt_wait(:job, '60 s'); SELECT :job");

	like($out, qr/zh>en: told/, 'the result');
	my ($job) = $out =~ /^(\d+)$/m;
	my ($code, $stdout) = $node->psql('postgres',
		"LISTEN hymt_job; SELECT " . submit('mock:fail too-long') . " AS job \\gset\n SELECT hymt_submit('a', 'en', 'en') AS next \\gset\n"
		  . "SELECT hymt_wait(:next, '60 s');\nSELECT state FROM hymt_job WHERE pg_sleep(0.5) IS NOT NULL AND id = :job;\nSELECT 'told' WHERE :job > 0;");
	like($stdout, qr/Asynchronous notification "hymt_job" with payload "\d+" received/, 'a listener hears of it');
	is(() = ($stdout =~ /payload "\d+"/g), 2, 'once for each job');
};

scenario 'with the transaction, not before and not without' => sub {
	my $session = background($node, 'BEGIN; SELECT ' . submit('later') . '; SELECT pg_sleep(1); COMMIT');

	session_pid($node, $session);
	my $early = new_job('early');
	is(result($early), 'zh>en: early', 'a job with a higher number is made first');
	my $job = finish($session)->{out};
	($job) = $job =~ /^(\d+)/;
	cmp_ok($job, '<', $early, 'the other has a lower number') or return;
	is(result($job), 'zh>en: later', 'and is not passed over');

	$node->safe_psql('postgres', 'BEGIN; SELECT ' . submit('mock:counters') . '; ROLLBACK');
	is($node->safe_psql('postgres', "SELECT count(*) FROM hymt_job WHERE source = 'mock:counters'"), '0', 'gone with its rollback');
};

scenario 'prepared transactions' => sub {
	$node->safe_psql('postgres', 'BEGIN; SELECT ' . submit('prepared') . "; PREPARE TRANSACTION 'one'");
	my $after = new_job('after it');
	is(result($after), 'zh>en: after it', 'one that came later');
	$node->safe_psql('postgres', "COMMIT PREPARED 'one'");
	ok(wait_until($node, "SELECT hymt_result(id) FROM hymt_job WHERE source = 'prepared'", 'zh>en: prepared'), 'made when it is committed');

	my $file = new_file();
	my $holder = new_job("mock:hold $file");
	my $job = new_job('mock:sleep 30');
	wait_for_state($job, 'running');
	$node->safe_psql('postgres', "BEGIN; SELECT hymt_cancel($job); PREPARE TRANSACTION 'two'");
	my $session = background($node, "SELECT hymt_wait($job)");
	session_pid($node, $session);
	$node->safe_psql('postgres', "COMMIT PREPARED 'two'");
	is(finish($session)->{err}, 'ERROR:  55000', 'cancelled by a prepared transaction');
	append_to_file($file, '');
	result($holder);
};

scenario 'cancelling' => sub {
	my $file = new_file();
	my $job = new_job("mock:sleep 30");
	my $session;

	wait_for_state($job, 'running');
	wait_for_slots($node, 1);
	$session = background($node, "SELECT hymt_wait($job)");
	session_pid($node, $session);
	is($node->safe_psql('postgres', "SELECT hymt_cancel($job)"), 't', 'one that is running');
	is(finish($session)->{err}, 'ERROR:  55000', 'who waits for it gets an error');
	cmp_ok($session->{took}, '<', 20, 'at once');
	wait_for_slots($node, 0);
	is_job($job, 'state, translation', 'cancelled|', 'there is no result');
	is($node->safe_psql('postgres', "SELECT hymt_cancel($job)"), 'f', 'once');

	# Whose transaction is open keeps others from nothing; rolled back, the job is done after all.
	$job = new_job("mock:hold $file");
	wait_for_state($job, 'running');
	$session = background($node, "BEGIN; SELECT hymt_cancel($job); SELECT pg_sleep(2); ROLLBACK");
	ok(wait_until($node, "SELECT count(*) FROM pg_stat_activity WHERE application_name = '$session->{name}' AND wait_event = 'PgSleep'", '1'),
		'somebody is about to cancel it');
	append_to_file($file, '');
	my $other = new_job('meanwhile');
	is(result($other), 'zh>en: meanwhile', 'other results are stored');
	finish($session);
	like(result($job), qr/released/, 'and its own, after the rollback');

	# One that is queued, in a transaction that is rolled back.
	$node->safe_psql('postgres', "BEGIN; SELECT " . submit('queued') . " AS job \\gset\n SELECT hymt_cancel(:job); COMMIT");
	is($node->safe_psql('postgres', "SELECT state FROM hymt_job WHERE source = 'queued'"), 'cancelled', 'before it is claimed');
};

scenario 'failures' => sub {
	my $job = new_job('mock:fail too-long');
	my ($code, $out, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\nSELECT hymt_wait($job, '60 s')");

	like($err, qr/54000/, 'of the text: raised by who waits');
	is_job($job, 'state, attempts, sqlstate', 'failed|1|54000', 'and not tried again');
	$job = new_job('mock:fail internal');
	($code, $out, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\nSELECT hymt_wait($job, '60 s')");
	like($err, qr/MT003/, 'of the engine');
	is_job($job, 'state, attempts, sqlstate, next_attempt', 'dead|2|MT003|', 'given up after hymt.job_attempts');
	$job = new_job('mock:fail internal', ", on_error => 'source'");
	is(result($job), 'mock:fail internal', 'on_error is asked after the last attempt');
	is_job($job, 'state, attempts, sqlstate', 'done|2|MT003', 'and the reason is kept');

	my $identity = server_identity($node);
	$job = new_job('mock:crash');
	my @others = map { new_job("beside it $_") } 1 .. 5;
	($code, $out, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\nSELECT hymt_wait($job, '60 s')");
	like($err, qr/MT002/, 'poison');
	is_job($job, 'state, attempts, sqlstate', 'dead|1|MT002', 'is a dead letter at once');
	is(result($others[$_]), 'zh>en: beside it ' . ($_ + 1), 'and others are made') for 0 .. $#others;
	my $file = new_file();
	$job = new_job("mock:crashonce $file");
	isnt(result($job), '', 'an engine that dies once');
	is_job($job, 'attempts', '1', 'costs no attempt');
	is_undisturbed($node, $identity, 'failures');
};

scenario 'no engine is to be had' => sub {
	use_model($node, 'mock-refuse missing');
	my $job = new_job('patient');
	my $session = background($node, "SELECT hymt_wait($job)");
	ok(wait_until($node, "SELECT state FROM hymt_job WHERE id = $job AND clock_timestamp() > submitted + interval '3 s'", 'queued'), 'the job waits');
	is_job($job, 'attempts', '0', 'which is no attempt');
	use_model($node, 'mock-plain');
	is(finish($session)->{out}, 'zh>en: patient', 'until there is one');
};

scenario 'the worker ends in the middle of work' => sub {
	my $file = new_file();
	my $identity = server_identity($node);
	my @jobs = map { new_job("mock:hold $file\n$_") } 1 .. 20;

	wait_for_state($jobs[19], 'running');
	my $token = $node->safe_psql('postgres', "SELECT token FROM hymt_job WHERE id = $jobs[0]");
	my $worker = database_worker();
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($worker)");
	ok(wait_for_end($worker), 'it is gone');
	ok(wait_until($node, "SELECT token <> $token FROM hymt_job WHERE id = $jobs[0]", 't'), 'another one has a token of its own');
	append_to_file($file, '');
	is(result($jobs[$_]), 'released', 'a result') for (0, 19);
	is( $node->safe_psql('postgres', "SELECT DISTINCT state, attempts FROM hymt_job WHERE id BETWEEN $jobs[0] AND $jobs[19]"),
		'done|2', 'each is stored once');
	is_undisturbed($node, $identity, 'the worker');
};

scenario 'an attempt that is not the last' => sub {
	my $file = new_file();
	my $job = new_job("mock:hold $file");

	wait_for_state($job, 'running');
	$node->safe_psql('postgres', "UPDATE hymt_job SET token = token + 1 WHERE id = $job");
	append_to_file($file, '');
	wait_for_slots($node, 0);
	result(new_job("after $_")) for 1 .. 2;
	is_job($job, 'state, translation', 'running|', 'stores nothing');
	wait_for_departure();
	new_job('another worker takes what is there');
	is(result($job), 'released', 'the next one does');
	is_job($job, 'state, attempts', 'done|2', 'once');
};

scenario 'restarts' => sub {
	foreach my $mode ('fast', 'immediate')
	{
		my $file = new_file();
		my $job = new_job("mock:hold $file");
		my $queued = new_job('queued before');

		wait_for_state($job, 'running');
		$node->stop($mode);
		$node->start;
		append_to_file($file, '');
		is(result($job), 'released', "$mode: one that was running");
		is(result($queued), 'zh>en: queued before', "$mode: another one");
		is_job($job, 'state', 'done', "$mode: its state");
	}
};

scenario 'a backend that crashes' => sub {
	my $file = new_file();
	my $job = new_job("mock:hold $file");

	wait_for_state($job, 'running');
	my $session = background($node, 'SELECT pg_sleep(60)');
	kill 'KILL', session_pid($node, $session);
	finish($session);
	ok($node->poll_query_until('postgres', 'SELECT true'), 'the server is back');
	append_to_file($file, '');
	is(result($job), 'released', 'the job is made');
};

scenario 'retention' => sub {
	my $old = new_job('old');
	result($old);
	wait_for_departure();
	$node->safe_psql('postgres', "UPDATE hymt_job SET finished = now() - interval '7 days 1 minute' WHERE id = $old");
	my $young = new_job('young');
	result($young);
	ok(wait_until($node, "SELECT count(*) FROM hymt_job WHERE id = $old", '0'), 'an old one is deleted');
	is_job($young, 'state', 'done', 'a young one stays');
	# Without another job there is a timer.
	$node->append_conf('postgresql.conf', 'hymt.job_retention = 2');
	$node->reload;
	my $last = new_job('last');
	ok(wait_until($node, "SELECT count(*) FROM hymt_job WHERE state NOT IN ('queued', 'running')", '0'), 'all are, in time');
	$node->append_conf('postgresql.conf', "hymt.job_retention = '7 d'");
	$node->reload;
};

scenario 'while a snapshot is held' => sub {
	my $holder = background($node, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; SELECT pg_sleep(30); COMMIT');

	ok(wait_until($node, "SELECT count(*) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND wait_event = 'PgSleep'", '1'), 'it is');
	$node->safe_psql('postgres', "SELECT count(hymt_submit('text ' || i, 'zh', 'en')) FROM generate_series(1, 3000) AS i") for 1 .. 2;
	ok(wait_until($node, "SELECT count(*) FROM hymt_job WHERE source LIKE 'text %' AND translation = 'zh>en: ' || source AND attempts = 1", '6000'),
		'all are made');
	is($node->safe_psql('postgres', "SELECT count(DISTINCT state) FROM hymt_job"), '1', 'none is left');
	$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '$holder->{name}'");
	finish($holder);
};

scenario 'an engine that answers everything at once' => sub {
	use_model($node, 'mock-step 0 1000');
	$node->safe_psql('postgres', "SELECT count(hymt_submit('quick ' || i, 'zh', 'en')) FROM generate_series(1, 3000) AS i");
	ok(wait_until($node, "SELECT count(*) FROM hymt_job WHERE source LIKE 'quick %' AND state = 'done'", '3000'), 'all are made');
	use_model($node, 'mock-plain');
};

scenario 'a role and the extension are dropped' => sub {
	$node->safe_psql('postgres', 'CREATE ROLE leaver; GRANT EXECUTE ON FUNCTION hymt_submit(text, text, text, text, text, text, text, jsonb) TO leaver');
	my $file = new_file();
	my @jobs = split /\n/, $node->safe_psql('postgres',
		'SET ROLE leaver; SELECT ' . submit("mock:hold $file") . ' FROM generate_series(1, 2)');
	wait_for_state($jobs[1], 'running');
	$node->safe_psql('postgres', 'DROP OWNED BY leaver; DROP ROLE leaver');
	append_to_file($file, '');
	wait_for_state($jobs[1], 'done');

	my $job = new_job('mock:sleep 30');
	wait_for_state($job, 'running');
	$node->safe_psql('postgres', 'DROP EXTENSION hymt');
	wait_for_departure();
	$node->safe_psql('postgres', 'CREATE EXTENSION hymt');
	is(result(new_job('anew')), 'zh>en: anew', 'another one works');
};

scenario 'statements that need the database' => sub {
	$node->safe_psql('postgres', 'CREATE DATABASE other');
	$node->safe_psql('other', 'CREATE EXTENSION hymt');
	my $file = new_file();
	my $job = $node->safe_psql('other', 'SELECT ' . submit("mock:hold $file"));
	wait_for_slots($node, 1);
	$node->safe_psql('postgres', 'ALTER DATABASE other RENAME TO another');
	append_to_file($file, '');
	is($node->safe_psql('another', "SELECT hymt_wait($job, '60 s')"), 'released', 'a job goes on after a renaming');
	is($node->safe_psql('another', "SELECT attempts FROM hymt_job WHERE id = $job"), '1', 'which costs no attempt');
	$node->safe_psql('another', 'SELECT ' . submit('mock:sleep 30'));
	wait_for_slots($node, 1);
	$node->safe_psql('postgres', 'DROP DATABASE another');
	wait_for_slots($node, 0);
};

scenario 'a standby' => sub {
	$node->backup('copy');
	my $standby = PostgreSQL::Test::Cluster->new('jobs_standby');
	$standby->init_from_backup($node, 'copy', has_streaming => 1);
	$standby->start;
	my $done = new_job('done before');
	result($done);
	my $file = new_file();
	my $job = new_job("mock:hold $file");
	wait_for_state($job, 'running');
	my $queued = new_job("mock:hold $file\nsecond");
	wait_for_state($queued, 'running');
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	is($standby->safe_psql('postgres', "SELECT hymt_result($done)"), 'zh>en: done before', 'results can be read');
	foreach my $statement (submit('a'), "hymt_wait($job)", "hymt_cancel($job)")
	{
		my ($code, $out, $err) = $standby->psql('postgres', "\\set VERBOSITY sqlstate\nSELECT $statement");
		like($err, qr/25006/, "not on a standby: $statement");
	}
	$node->stop('immediate');
	$standby->promote;
	append_to_file($file, '');
	ok(wait_until($standby, "SELECT hymt_result($job)", 'released'), 'promoted, it goes on with what was running');
	ok(wait_until($standby, "SELECT hymt_result($queued)", 'released'), 'all of it');
	is($standby->safe_psql('postgres', 'SELECT hymt_wait(' . $standby->safe_psql('postgres', 'SELECT ' . submit('new')) . ", '60 s')"),
		'zh>en: new', 'and takes new jobs');
	$standby->stop;
	$node->start;
	is(result($job), 'released', 'the former primary too');
};

$node->stop;
done_testing();
