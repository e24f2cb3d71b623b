# Seen from outside: counters, who waits, health, and what pg_stat_activity and the log say of hymt.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = hymt_node('statistics', conf => <<'END');
hymt.queue_slots = 8
hymt.queue_memory = 1MB
wal_level = replica
max_wal_senders = 4
END

# A value of hymt_stat.
sub stat_is
{
	my ($columns, $expected, $name) = @_;

	return is($node->safe_psql('postgres', "SELECT $columns FROM hymt_stat"), $expected, $name);
}

sub reset_statistics
{
	return $node->safe_psql('postgres', 'SELECT hymt_stat_reset()');
}

sub health
{
	return $node->safe_psql('postgres', 'SELECT * FROM hymt_health()');
}

# Whatever becomes of it.
sub ask
{
	my ($text, $before) = @_;

	return $node->psql('postgres', ($before // '') . translate($text));
}

# Nobody is lost: each request has one end.
sub adds_up
{
	my ($name) = @_;

	wait_for_slots($node, 0);
	return stat_is(<<'END', 't', "$name: every request has one end");
requests = answered + cancelled + failed_language + failed_too_long + failed_unfinished + failed_crashed + failed_engine
  + failed_memory + failed_timeout + failed_unavailable + failed_other
END
}

# Ends of requests, one of each kind.
{
	reset_statistics();
	stat_is('requests, stats_reset > now() - interval \'1 minute\'', '0|t', 'reset');
	ask("text $_") foreach 1 .. 3;
	stat_is('requests, answered, retries, restarts', '3|3|0|0', 'answers are counted');
	stat_is('input_tokens > 0 AND output_tokens > 0', 't', 'tokens are counted');

	ask("mock:fail $_") foreach qw(language too-long unfinished no-memory internal numeric bad-text bad-request adapter);
	ask("mock:finish $_") foreach qw(length loop);
	ask('x' x 600_000);
	stat_is(
		'failed_language, failed_too_long, failed_unfinished, failed_memory, failed_engine, failed_unavailable, failed_other',
		'1|2|3|1|2|1|2', 'failures are counted by kind');

	ask('mock:sleep 30', "SET statement_timeout = '200ms'; ");
	stat_is('cancelled', '1', 'callers that left are counted');

	ask('mock:crash');
	stat_is('failed_crashed, retries, restarts', '1|1|2', 'a text that the engine dies of is counted, and its retry');
	stat_is('requests', '17', 'all were requests');
	ask('42');
	stat_is('requests', '17', 'what comes back unchanged is none');
	adds_up('one of each kind');
}

# What engines count, of one after the other.
{
	reset_statistics();
	ask('mock:counters') foreach 1 .. 2;
	my $counters = 'SELECT degraded_steps, reused_tokens, preemptions FROM hymt_stat';
	ok(wait_until($node, $counters, '6|10|14'), 'counters of an engine');
	use_model($node, 'mock-counters');
	wait_for_status($node, "state = 'ready'");
	ask('mock:counters');
	ok(wait_until($node, $counters, '9|15|21'), 'those of the next one come on top');
}

# Times: from the session's call on, and not before there is one place for two.
{
	use_model($node, 'mock-credits-1');
	wait_for_status($node, "state = 'ready'");
	reset_statistics();
	my @sleepers = map { background($node, translate("mock:sleep 1.$_")) } 2 .. 3;
	finish($_) foreach @sleepers;
	stat_is(
		'(SELECT sum(b) FROM unnest(queue_wait_histogram) AS b), (SELECT sum(b) FROM unnest(queue_wait_histogram[12:]) AS b)',
		'2|1', 'of two, one waited more than 1024 ms for its turn');
	stat_is(
		'(SELECT sum(b) FROM unnest(total_time_histogram) AS b), (SELECT sum(b) FROM unnest(total_time_histogram[12:]) AS b)',
		'2|2', 'both took more than 1024 ms together');
	stat_is('total_time_p50 > 1024 AND total_time_p95 > 2048 AND total_time_p99 >= total_time_p95',
		't', 'quantiles lie in their buckets');
	stat_is('queue_wait_ms BETWEEN 1000 AND total_time_ms AND total_time_ms > 3000', 't', 'sums of times');
	ok(wait_until($node, 'SELECT steps > 0 AND rows_per_step > 0 FROM hymt_stat', 't'), 'steps are counted');

	# With its only place taken, hymt.queue_timeout passes.
	my $sleeper = background($node, translate('mock:sleep 30'));
	wait_for_slots($node, 1);
	ok(wait_until($node, "SELECT string_agg(state, ',') FROM hymt_stat_activity", 'claimed'), 'a request is claimed');
	ask('waits', "SET hymt.queue_timeout = '100ms'; ");
	stat_is('failed_timeout', '1', 'a timeout is counted');
	$node->psql('postgres', <<'END');
SET hymt.queue_timeout = '100ms'; SELECT hymt_translate(ARRAY['one waits', 'two waits', 'three waits'], 'zh', 'en')
END
	stat_is('failed_timeout, cancelled', '4|0', 'so are those of a whole array');
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . session_pid($node, $sleeper) . ')');
	finish($sleeper);
	adds_up('timeout');
}

# Who waits, and who may know.
{
	$node->safe_psql('postgres', <<'END');
CREATE ROLE ann LOGIN; CREATE ROLE bob LOGIN; CREATE ROLE eve LOGIN; CREATE ROLE watch LOGIN IN ROLE pg_monitor;
GRANT EXECUTE ON FUNCTION hymt_translate(text, text, text, text, text, text, text, jsonb), hymt_stat_activity() TO PUBLIC;
GRANT SELECT ON hymt_stat_activity TO PUBLIC;
END
	my $ann = background($node, 'SET ROLE ann; ' . translate('mock:sleep 30'));
	wait_until($node, "SELECT string_agg(state, ',') FROM hymt_stat_activity", 'claimed');
	my $bob = background($node, 'SET ROLE bob; ' . <<'END');
SELECT hymt_translate('mock:sleep 31', 'zh', 'en', options => '{"priority": "bulk"}')
END
	wait_for_slots($node, 2);
	my %pid = (ann => session_pid($node, $ann), bob => session_pid($node, $bob));
	my $columns = 'pid, state, class, database, role, device, source_lang, target_lang, text_bytes, retries, '
	  . 'submitted < now(), begun < now(), age > interval \'0\'';
	my $full_ann = "$pid{ann}|claimed|single|postgres|ann|0|zh|en|13|0|t|t|t";
	my $full_bob = "$pid{bob}|queued|bulk|postgres|bob||zh|en|13|0|t||t";
	my $query = "SELECT $columns FROM hymt_stat_activity ORDER BY age DESC NULLS LAST, pid = $pid{bob}";

	is($node->safe_psql('postgres', $query), "$full_ann\n$full_bob", 'a superuser sees all requests');
	is($node->safe_psql('postgres', "SET ROLE watch; $query"), "$full_ann\n$full_bob", 'so does a member of pg_monitor');
	is( $node->safe_psql('postgres', "SET ROLE bob; $query"),
		"$full_bob\n$pid{ann}|claimed|||||||||||",
		'others see their own, and that there are others');
	is( $node->safe_psql('postgres', "SET ROLE eve; $query"),
		"$pid{ann}|claimed|||||||||||\n$pid{bob}|queued|||||||||||",
		'or only that');
	is($node->safe_psql('postgres', "SELECT count(*) FROM hymt_stat_activity AS a WHERE a::text LIKE '%mock:%'"),
		'0', 'nobody sees a text');
	is( $node->safe_psql(
			'postgres', "SELECT state, query, wait_event IS NOT NULL FROM pg_stat_activity WHERE backend_type = 'hymt worker'"),
		'active|hymt: requests in flight: 1|t',
		'pg_stat_activity shows a busy worker');
	foreach my $session ($ann, $bob)
	{
		$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . session_pid($node, $session) . ')');
		finish($session);
	}
	wait_for_all_free($node, 'two roles');
	ok( wait_until(
			$node, "SELECT state, query FROM pg_stat_activity WHERE backend_type = 'hymt worker'",
			'idle|hymt: requests in flight: 0'),
		'pg_stat_activity shows an idle worker');
}

# Health.
{
	is(health(), 't|', 'all is well');
	is($node->safe_psql('postgres', 'SET ROLE watch; SELECT ok FROM hymt_health()'), 't', 'pg_monitor may ask');
	is(($node->psql('postgres', 'SET ROLE eve; SELECT ok FROM hymt_health()'))[0], 3, 'others may not');

	my @sleepers = map { background($node, translate("mock:sleep 3$_")) } 1 .. 8;
	wait_for_slots($node, 8);
	is(health(), 't|the queue is full: callers wait for a place in it', 'a full queue');
	$node->safe_psql('postgres',
		'SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name LIKE \'hymt_test_%\'');
	finish($_) foreach @sleepers;
	wait_for_all_free($node, 'full queue');

	# A worker that does nothing although it should.
	$node->append_conf('postgresql.conf', "hymt.engine_timeout = '500ms'");
	$node->reload;
	wait_until($node, 'SHOW hymt.engine_timeout', '500ms');
	my $worker = status($node, 'worker_pid');
	kill 'STOP', $worker;
	my $session = background($node, translate('patience'));
	ok(wait_until($node, 'SELECT * FROM hymt_health()', 'f|the queue is stalled: no progress for twice hymt.engine_timeout'),
		'a queue that stands still');
	kill 'CONT', $worker;
	is(finish($session)->{out}, 'zh>en: patience', 'and then it goes on');
	is(health(), 't|', 'all is well again');
	$node->append_conf('postgresql.conf', "hymt.engine_timeout = '1min'");

	use_model($node, 'mock-load-slow-5');
	ok(wait_until($node, "SELECT ok, reason ~ '^the model is loading \\(.+, \\d+ %\\)' FROM hymt_health()", 'f|t'),
		'a model that is loading');
	append_to_file(model_directory($node, 'mock-refuse') . '/fault', "refuse missing\n");
	use_model($node, 'mock-refuse');
	ok( wait_until($node, "SELECT ok, reason ~ '^the model could not be loaded: .' FROM hymt_health()", 'f|t'),
		'a model that is refused');
	reset_statistics();
	ask('in vain');
	stat_is('requests, failed_unavailable', '1|1', 'a request that nobody can answer is counted');
	adds_up('refused');
	use_model($node, 'mock-exit-at-start');
	ok( wait_until(
			$node, "SELECT ok, reason ~ '^the (engine is being restarted|model could not be loaded): .' FROM hymt_health()",
			'f|t'),
		'an engine that dies');
	use_model($node, 'mock-plain');
	ok(wait_until($node, 'SELECT ok FROM hymt_health()', 't'), 'a good model again');
}

# A standby has counters and a worker of its own.
{
	$node->backup('copy');
	my $standby = PostgreSQL::Test::Cluster->new('statistics_standby');
	$standby->init_from_backup($node, 'copy', has_streaming => 1);
	$standby->start;
	ok(wait_until($standby, 'SELECT ok FROM hymt_health()', 't'), 'health on a standby');
	is($standby->safe_psql('postgres', translate('afar')), 'zh>en: afar', 'translating on a standby');
	is( $standby->safe_psql(
			'postgres',
			'SELECT pg_is_in_recovery(), requests, answered, (SELECT count(*) FROM hymt_stat_activity) FROM hymt_stat'),
		't|1|1|0',
		'statistics on a standby');
	$standby->safe_psql('postgres', 'SELECT hymt_stat_reset()');
	is($standby->safe_psql('postgres', 'SELECT requests FROM hymt_stat'), '0', 'reset on a standby');
	$standby->stop;
}

# Counters are of this run of the server. One form for all of hymt's lines in the log.
{
	ask('mock:log 3');
	$node->restart;
	is($node->safe_psql('postgres', 'SELECT requests, answered FROM hymt_stat'), '0|0', 'a restart begins anew');
	my @lines = grep { /hymt/ && / LOG:  / && !/ LOG:  (statement|received|hymt: )/ } split /\n/, slurp_file($node->logfile);
	@lines = grep { !/parameter "hymt\.|background worker "hymt / } @lines;    # PostgreSQL's own
	is("@lines", '', 'every line begins alike');
	like(slurp_file($node->logfile), qr/LOG:  hymt: engine \(PID \d+\) is ready$/m, 'and names the engine');
}

# Not preloaded: a probe gets an answer, the others an error.
{
	$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
	$node->restart;
	is(health(), 'f|hymt is not in shared_preload_libraries', 'health without preloading');
	unlike(slurp_file($node->logfile), qr/invalid configuration parameter name/, 'settings of server start are no nuisance');
	foreach my $statement ('SELECT * FROM hymt_stat', 'SELECT * FROM hymt_stat_activity', 'SELECT hymt_stat_reset()')
	{
		my $session = finish(background($node, $statement));
		like($session->{err}, qr/ERROR:  55000/, "$statement without preloading");
	}
}

$node->stop;
done_testing();
