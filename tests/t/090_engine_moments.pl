# Every fault at every moment of an engine's life, once: whoever asks is answered, by the next engine if need be. Then
# the real engine, killed again and again while sessions translate. No process of the server is ever replaced.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

# Faults that show by themselves, that only the clock shows, and one that is none.
my @sudden = ('crash', 'abort', 'exit', 'garbage', 'cut', 'close');
my @silent = ('half', 'hang');
my @harmless = ('late');
my @moments = ([ 'start', 'loading' ], [ 'hello', 'idle' ], [ 'ready', 'step' ], ['answering']);

# Most of the time is spent waiting for delays and timeouts: four servers at a time share it.
my $conf = "hymt.engine_timeout = '2s'\nrestart_after_crash = on\n";
my @nodes = map { hymt_node("moments_$_", model => 'mock-moments', conf => $conf) } 1 .. 4;
my @identities = map { server_identity($_) } @nodes;

# Lives through everything, holding a temporary table to prove it.
sub witness
{
	my ($on) = @_;
	my $session = background($on, <<'END');
CREATE TEMP TABLE witness AS SELECT 'still here' AS word;
DO $$ BEGIN PERFORM pg_sleep(600); EXCEPTION WHEN query_canceled THEN NULL; END $$;
SELECT word FROM witness;
END

	wait_until($on, "SELECT wait_event FROM pg_stat_activity WHERE application_name = '$session->{name}'", 'PgSleep');
	return $session;
}

sub is_still_here
{
	my ($on, $witness) = @_;

	$on->safe_psql('postgres', 'SELECT pg_cancel_backend(' . session_pid($on, $witness) . ')');
	return is(finish($witness)->{out}, 'still here', 'a session lived through all of it');
}

# The engine in use is killed, and the next one has the fault before it. Returns the file that appears with the fault.
sub begin_fault
{
	my ($node, $moment, $fault) = @_;
	my $model = $node->basedir . '/mock-moments';

	unlink "$model/fault";
	append_to_file("$model/fault", "at $moment $fault\n");
	wait_for_status($node, "state = 'ready'");
	kill 'KILL', status($node, 'engine_pid');
	return "$model/happened-$moment-$fault";
}

sub wait_for_file
{
	my ($file) = @_;

	for (1 .. 1500)
	{
		return 1 if -e $file;
		usleep(20_000);
	}
	return 0;
}

# One fault at a moment each on several servers.
sub check_fault
{
	my ($fault, $moments) = @_;
	my @runs = map { { node => $nodes[$_], moment => $moments->[$_] } } 0 .. $#$moments;

	foreach my $run (@runs)
	{
		$run->{restarts} = status($run->{node}, 'restarts');
		$run->{mark} = begin_fault($run->{node}, $run->{moment}, $fault);
	}
	my $since = time;
	foreach my $run (@runs)
	{
		# Requests of sessions that wait already, but for the moment that comes without any.
		wait_for_file($run->{mark}) if $run->{moment} eq 'idle';
		$run->{sessions} = [ map { background($run->{node}, translate("text $_ in $run->{moment} $fault")) } 1, 2 ];
	}
	foreach my $run (@runs)
	{
		my $name = "$fault at \"$run->{moment}\"";

		is_deeply(
			[ map { my $s = finish($_); "$s->{out}$s->{err}" } @{ $run->{sessions} } ],
			[ map { "zh>en: text $_ in $run->{moment} $fault" } 1, 2 ],
			sprintf('%s: all are answered, after %.1f s', $name, time - $since));
		ok(-e $run->{mark}, "$name: it did happen");
		my $deaths = status($run->{node}, 'restarts') - $run->{restarts};
		# One was killed by the test itself.
		ok($fault eq 'late' ? $deaths == 1 : $deaths >= 2, "$name: engines lost: $deaths");
	}
	return;
}

my @witnesses = map { witness($_) } @nodes;
foreach my $fault (@sudden, @silent, @harmless)
{
	scenario "$fault at every moment" => sub {
		foreach my $column (0, 1)
		{
			check_fault($fault, [ grep { defined } map { $_->[$column] } @moments ]);
		}
		is_undisturbed($nodes[$_], $identities[$_], 'server ' . ($_ + 1)) foreach 0 .. $#nodes;
	};
}
foreach my $i (0 .. $#nodes)
{
	is_still_here($nodes[$i], $witnesses[$i]);
	unlike(
		slurp_file($nodes[$i]->logfile),
		qr/terminating any other active server processes|PANIC|server process .* was terminated/,
		'the log has no crash of the server');
	$nodes[$i]->stop;
}

# --- the real engine ----------------------------------------------------------------------------------------------

my $real = hymt_node('real', model => 'demo', engine => '', conf => "hymt.threads = 1\nrestart_after_crash = on\n");
my $real_identity = server_identity($real);

scenario 'the engine is the first to go when memory is out' => sub {
	wait_for_status($real, "state = 'ready'");
	my ($engine, $worker) = split /\|/, status($real, 'engine_pid, worker_pid');
	my ($score, $worker_score) = map { slurp_file("/proc/$_/oom_score_adj") + 0 } ($engine, $worker);

	cmp_ok($score, '>=', 500, 'its OOM score is raised');
	cmp_ok($score, '>', $worker_score, 'above that of the server');
};

scenario 'the engine is killed while eight sessions translate' => sub {
	my @words = (
		'自行车', '红色连衣裙', '厨房用具', '电脑配件', '儿童玩具', '办公椅', '登山鞋', '咖啡机', '太阳镜', '床上用品',
		'电动牙刷', '园艺工具', '蓝色', '女装', '宠物食品', '乐器');
	my $witness = witness($real);

	# Answered in peace first; what is said under fire has to be the same.
	$real->safe_psql('postgres', 'CREATE TABLE words (word text, translation text)');
	$real->safe_psql('postgres', "INSERT INTO words VALUES ('$_')") foreach @words;
	$real->safe_psql('postgres', "UPDATE words SET translation = hymt_translate(word, 'zh', 'en', on_error => 'source')");
	cmp_ok(
		$real->safe_psql('postgres', 'SELECT count(*) FROM words WHERE translation ~ $$[a-z]$$'),
		'>', 8, 'the model translates');

	# Row by row, so that it takes a while, and not before all of them are known.
	$real->safe_psql('postgres', 'CREATE TABLE gate (open bool)');
	my @sessions = map { background($real, <<'END') } 1 .. 8;
SET hymt.read_ahead = off;
DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM gate) LOOP PERFORM pg_sleep(0.02); END LOOP; END $$;
SELECT count(*), count(*) FILTER (WHERE translation IS DISTINCT FROM again)
  FROM (SELECT translation, hymt_translate(word, 'zh', 'en', on_error => 'source') AS again
          FROM generate_series(1, 24), (SELECT * FROM words ORDER BY random()) AS w) AS s
END
	my @pids = map { session_pid($real, $_) } @sessions;
	$real->safe_psql('postgres', 'INSERT INTO gate VALUES (true)');
	my $last = 0;
	my $killed = 0;
	for my $round (1 .. 4)
	{
		last unless grep { process_lives($_) } @pids;
		wait_until($real,
			"SELECT state = 'ready' AND engine_pid <> $last OR NOT EXISTS (SELECT FROM pg_stat_activity WHERE query ~ 'again')"
			  . " FROM hymt_status", 't');
		($last) = split /\n/, status($real, 'engine_pid');
		usleep(150_000 * $round);
		$killed += kill 'KILL', $last;
	}
	note("engines killed: $killed");
	cmp_ok($killed, '>=', 2, 'engines were killed');
	is_deeply(
		[ map { my $s = finish($_); "$s->{out}$s->{err}" } @sessions ],
		[ ('384|0') x 8 ],
		'every row is what it was in peace');
	is(status($real, 'restarts'), $killed, 'and each cost one engine');
	is_still_here($real, $witness);
	is_undisturbed($real, $real_identity, 'killed engines');
};

$real->stop;
done_testing();
