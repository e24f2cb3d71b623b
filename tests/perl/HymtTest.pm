# HymtTest.pm: what the TAP tests share: a server with the mock engine, sessions in the background, and polling.
#
# Tests never assert fine timing, only that nothing waits for an engine that sleeps half a minute; everything that takes
# time is polled for, with a generous limit.
#
# Tests are made of scenarios. At the end of each the harness itself checks that every server it knows has all slots and
# all bytes of its queue back, whatever the scenario was about, and ends the sessions that a failed one has left.
package HymtTest;

use strict;
use warnings;

use Exporter 'import';
use File::Copy qw(copy);
use File::Spec;
use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

our @EXPORT = qw(
  hymt_node watch model_directory use_model switch_model restart_workers scenario
  translate background finish session_pid
  status wait_until wait_for_status wait_for_slots wait_for_all_free
  server_identity is_undisturbed process_lives wait_for_end anonymous_kb
  PROMPT_SECONDS);

# An end that was asked for comes within 0.1 s on an idle machine; this is what a busy one may take, and far below the
# 30 s that the engine sleeps.
use constant PROMPT_SECONDS => 5;

# How long anything may take before a test gives up on it.
use constant LIMIT_SECONDS => $ENV{HYMT_TEST_LIMIT} // 60;

my $number_of_sessions = 0;
my @watched;			# nodes whose queue is looked at after each scenario
my @unfinished;			# sessions in the background

# The mock engine where the server's user can execute it, whoever owns the checkout.
sub mock_engine
{
	my ($node) = @_;
	my $built = $ENV{HYMT_MOCK_ENGINE} // "$FindBin::RealBin/../../build/tests/hymt-mock-engine";
	my $copy = $node->basedir . '/hymt-mock-engine';

	if (!-e $copy)
	{
		copy($built, $copy) or die "cannot copy $built: $!";
		chmod 0755, $copy or die "cannot make $copy executable: $!";
	}
	return $copy;
}

# A model directory of that name; what the mock engine does at start depends on it.
sub model_directory
{
	my ($node, $name) = @_;
	my $directory = $node->basedir . "/$name";

	mkdir $directory;
	return $directory;
}

# A running server with hymt, the mock engine and the extension. Nothing is cached unless conf says so: most tests ask for
# what they want to happen, and it would not happen to a text that was translated before. Options: model => name or path, conf => more settings,
# init => arguments of init, engine => '' and model => 'demo' for the real ones, install_path => another PostgreSQL.
sub hymt_node
{
	my ($name, %option) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name, install_path => $option{install_path});
	my $model = $option{model} // 'mock-plain';

	$node->init(@{ $option{init} // [] });
	my $engine = $option{engine} // mock_engine($node);
	$model = model_directory($node, $model) unless $engine eq '' || $model =~ m{/};
	$node->append_conf('postgresql.conf', <<"END");
shared_preload_libraries = 'hymt'
hymt.engine = '$engine'
hymt.model = '$model'
max_connections = 60
autovacuum = off
hymt.cache = off
END
	$node->append_conf('postgresql.conf', $option{conf}) if defined $option{conf};
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION hymt');
	watch($node);
	return $node;
}

# From now on this node's queue has to be empty after every scenario in which the node runs.
sub watch
{
	my ($node) = @_;

	push @watched, $node;
	return;
}

# One subtest. An exception in it fails it and nothing else; what it leaves in a queue fails it, too.
sub scenario
{
	my ($name, $code) = @_;
	my %was_there = map { $_ => 1 } @unfinished;

	return subtest $name => sub {
		eval { $code->(); 1 } or fail("it came to its end: $@");
		foreach my $session (grep { !$was_there{$_} } @unfinished)
		{
			diag("left behind: $session->{sql}");
			$session->{run}->kill_kill;
			$session->{node}->psql('postgres',
				"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '$session->{name}'");
		}
		@unfinished = grep { $was_there{$_} } @unfinished;
		foreach my $node (grep { defined $_->{_pid} } @watched)
		{
			wait_for_all_free($node, $node->name);
		}
	};
}

# Change hymt.model (name or path) and reload: engines that serve go on until one with the new model is ready.
sub switch_model
{
	my ($node, $model) = @_;

	$model = model_directory($node, $model) unless $model =~ m{/};
	$node->append_conf('postgresql.conf', "hymt.model = '$model'");
	$node->reload;
	wait_until($node, "SELECT current_setting('hymt.model') = '$model'", 't');
}

# Change hymt.model (name or path) and start the workers anew, so that no other model serves, even if this one cannot.
sub use_model
{
	my ($node, $model) = @_;

	switch_model($node, $model);
	restart_workers($node);
}

sub restart_workers
{
	my ($node) = @_;
	my $all = $node->safe_psql('postgres', 'SELECT count(*) FROM hymt_status');

	wait_until($node, 'SELECT count(worker_pid) FROM hymt_status', $all);
	my $former = $node->safe_psql('postgres', "SELECT coalesce(string_agg(worker_pid::text, ','), '0') FROM hymt_status");
	$node->safe_psql('postgres', "SELECT count(pg_terminate_backend(worker_pid)) FROM hymt_status");
	wait_until($node, "SELECT count(*) FROM hymt_status WHERE worker_pid NOT IN ($former)", $all);
}

# SQL that translates a literal from zh to en.
sub translate
{
	my ($text) = @_;

	$text =~ s/'/''/g;
	return "SELECT hymt_translate('$text', 'zh', 'en')";
}

# --- sessions in the background -----------------------------------------------------------------------------------

# Starts psql with the statements; errors show as "ERROR:  SQLSTATE". Its application_name is in {name}. Options:
# database => name, or connstr => where to connect instead.
sub background
{
	my ($node, $sql, %option) = @_;
	my %session = (out => '', err => '', begun => time, sql => $sql, node => $node);

	$session{name} = 'hymt_test_' . ++$number_of_sessions;
	my $script = $node->basedir . "/$session{name}.sql";
	local $ENV{PGAPPNAME} = $session{name};

	append_to_file($script, "$sql\n");
	$session{run} = IPC::Run::start(
		[
			'psql', '-XAtq', '-v', 'VERBOSITY=sqlstate', '-v', 'ON_ERROR_STOP=1', '-f', $script,
			'-d', $option{connstr} // $node->connstr($option{database} // 'postgres')
		],
		'<', File::Spec->devnull, '>', \$session{out}, '2>', \$session{err});
	push @unfinished, \%session;
	return \%session;
}

# Waits for its end. Sets {out}, {err} (without NOTICEs) and {took}, in seconds.
sub finish
{
	my ($session) = @_;
	my $since = time;

	@unfinished = grep { $_ != $session } @unfinished;

	while ($session->{run}->pumpable && time < $since + LIMIT_SECONDS)
	{
		$session->{run}->pump_nb;
		usleep(5_000);
	}
	if ($session->{run}->pumpable)
	{
		diag("session still runs after " . LIMIT_SECONDS . " s: $session->{sql}");
		$session->{run}->kill_kill;
	}
	$session->{run}->finish;
	$session->{took} = time - $session->{begun};
	$session->{err} = join "\n", map { s/^psql:[^ ]*: //r } grep { !/NOTICE/ } split /\n/, $session->{err};
	chomp $session->{out};
	return $session;
}

# The server process of a background session, once it is there.
sub session_pid
{
	my ($node, $session) = @_;
	my $query = "SELECT pid FROM pg_stat_activity WHERE application_name = '$session->{name}' AND leader_pid IS NULL";

	wait_until($node, "SELECT count(*) FROM ($query) AS s", '1');
	return $node->safe_psql('postgres', $query);
}

# --- polling ------------------------------------------------------------------------------------------------------

# True when the query gave the expected output within the limit.
sub wait_until
{
	my ($node, $query, $expected) = @_;
	my $until = time + LIMIT_SECONDS;
	my $got;

	while (1)
	{
		my ($code, $out) = $node->psql('postgres', $query);
		$got = $code == 0 ? $out : '(no answer)';
		return 1 if $got eq $expected;
		last if time > $until;
		usleep(20_000);
	}
	diag("waited in vain for \"$expected\" from: $query\nlast: $got");
	return 0;
}

sub status
{
	my ($node, $column) = @_;

	return $node->safe_psql('postgres', "SELECT $column FROM hymt_status");
}

sub wait_for_status
{
	my ($node, $condition) = @_;

	return wait_until($node, "SELECT bool_and($condition) FROM hymt_status", 't');
}

sub wait_for_slots
{
	my ($node, $count) = @_;

	return wait_for_status($node, "slots_in_use = $count");
}

# Nothing of what was asked is left in the queue.
sub wait_for_all_free
{
	my ($node, $name) = @_;

	return ok(wait_for_status($node, 'slots_in_use = 0 AND queue_bytes_in_use = 0'),
		"$name: all slots and bytes are free");
}

# --- processes ----------------------------------------------------------------------------------------------------

sub process_lives
{
	my ($pid) = @_;

	return 0 unless -e "/proc/$pid/stat";
	# A zombie is gone, even where nobody collects it.
	open my $file, '<', "/proc/$pid/stat" or return 0;
	my $line = <$file> // '';
	return $line !~ /\) [ZX] /;
}

sub wait_for_end
{
	my ($pid) = @_;
	my $until = time + LIMIT_SECONDS;

	usleep(5_000) while process_lives($pid) && time < $until;
	return !process_lives($pid);
}

# Memory that a process has for itself alone, without files and shared memory, in kB.
sub anonymous_kb
{
	my ($pid) = @_;

	return slurp_file("/proc/$pid/status") =~ /^RssAnon:\s+(\d+) kB/m ? $1 : die "no RssAnon of $pid";
}

# What changes when the postmaster restarts its children.
sub server_identity
{
	my ($node) = @_;

	return $node->safe_psql('postgres', <<'END');
SELECT pg_postmaster_start_time(), string_agg(pid::text, ',' ORDER BY pid)
  FROM pg_stat_activity WHERE backend_type IN ('checkpointer', 'background writer', 'walwriter')
END
}

sub is_undisturbed
{
	my ($node, $identity, $name) = @_;

	return is(server_identity($node), $identity, "$name: the postmaster restarted nothing");
}

1;
