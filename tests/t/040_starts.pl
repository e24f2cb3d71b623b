# Engines that do not start, load slowly, or refuse the model; and settings that change.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $node = hymt_node('starts', conf => "hymt.engine_timeout = '2s'\n");
my $identity = server_identity($node);

# A translation with this model: its output, or its error.
sub outcome
{
	my ($model, $text) = @_;

	use_model($node, $model);
	my $session = finish(background($node, translate($text // 'hello')));
	return "$session->{out}$session->{err}";
}

# Callers are told, each time with the code of the reason, and a good model ends it.
my @refusals = (
	[ 'mock-exit-at-start', 'MT003' ],
	[ 'mock-exit-while-loading', 'MT003' ],
	[ 'mock-garbage-hello', 'MT003' ],
	[ 'mock-wrong-version', 'MT006' ],
	[ 'mock-refuse broken', 'MT001' ],
	[ 'mock-refuse unsupported-model', 'MT001' ],
	[ 'mock-refuse unreadable', '42501' ],
	[ 'mock-refuse no-memory', '53200' ],
	[ 'mock-refuse over-limit', '53200', undef, qr/HINT:  Raise hymt\.memory/ ],
	[ $node->basedir . '/no-such-model', '58P01' ],
	[ 'no_such_model_is_installed', '58P01', 'bare' ],
);
foreach my $case (@refusals)
{
	my ($model, $sqlstate, $bare, $hint) = @$case;
	my $since = time;

	if ($model =~ /^(mock-refuse) (.*)/)
	{
		# Named by a file, because the name of a failure has a dash of its own.
		my $directory = model_directory($node, "refuse_$2");
		append_to_file("$directory/fault", "refuse $2\n");
		$model = $directory;
	}
	if ($bare)
	{
		$node->append_conf('postgresql.conf', "hymt.model = '$model'");
		$node->reload;
		wait_until($node, "SELECT current_setting('hymt.model') = '$model'", 't');
		restart_workers($node);
		is(finish(background($node, translate('hello')))->{err}, "ERROR:  $sqlstate", "$model: the caller is told");
	}
	else
	{
		is(outcome($model), "ERROR:  $sqlstate", "$model: the caller is told");
	}
	note(sprintf('%s: after %.1f s', $model, time - $since));

	my $again = finish(background($node, translate('hello again')));
	is($again->{err}, "ERROR:  $sqlstate", "$model: the next caller too");
	cmp_ok($again->{took}, '<', PROMPT_SECONDS, "$model: and at once");
	is(status($node, 'state'), 'refused', "$model: hymt_status says so");
	isnt(status($node, 'last_error'), '', "$model: and why");
	like(status($node, 'last_error'), qr/restart PostgreSQL/, "$model: and what to do") if $sqlstate eq 'MT006';
	like(($node->psql('postgres', translate('why?')))[2], $hint, "$model: and what to do") if $hint;
}
is(outcome('mock-good'), 'zh>en: hello', 'a good model ends it');
wait_for_all_free($node, 'refusals');
is_undisturbed($node, $identity, 'refusals');

# An engine that crashes at its first start only.
is(outcome('mock-crash-once'), 'zh>en: hello', 'a crash at start that does not come back costs a delay only');

# An engine that says nothing at all, or stops in mid-start.
is(outcome('mock-silent'), 'ERROR:  MT003', 'an engine that says nothing');
is(outcome('mock-good'), 'zh>en: hello', 'a good model ends it');

# A model that is loading: callers wait, and are told once; waiting can be ended.
{
	use_model($node, 'mock-load-slow-4');
	my $patient = background($node, "\\set VERBOSITY default\n" . translate('patient'));
	my $impatient = background($node, "SET statement_timeout = 500; " . translate('impatient'));

	ok( wait_for_status(
			$node, "state = 'loading' AND loading_percent BETWEEN 1 AND 99 AND loading_phase = 'loading slowly'"),
		'loading: hymt_status shows progress');
	is(finish($impatient)->{err}, 'ERROR:  57014', 'loading: a wait can be ended');
	is(finish($patient)->{out}, 'zh>en: patient', 'loading: a patient caller gets the answer');
	wait_for_all_free($node, 'loading');
}

# A directory that appears later is found without anybody's help.
{
	my $directory = $node->basedir . '/appears-later';

	is(outcome($directory), 'ERROR:  58P01', 'a model that is not there');
	mkdir $directory;
	ok(wait_for_status($node, "state = 'ready' AND model = 'appears-later'"), 'is loaded when it has come');
	is($node->safe_psql('postgres', translate('hello')), 'zh>en: hello', 'and translates');
}

# The same settings again: nothing happens.
{
	my $engine = status($node, 'engine_pid');
	my $before = status($node, 'restarts, worker_pid');

	for (1 .. 100)
	{
		$node->reload;
		usleep(2_000);
	}
	usleep(500_000);
	is($node->safe_psql('postgres', translate('mock:pid')), $engine, 'a hundred reloads without change: the same engine');
	is(status($node, 'restarts, worker_pid'), $before, 'and the same worker');
}

# A path that does not fit is not cut.
{
	my $long = $node->basedir . '/' . join('/', ('x' x 100) x 20);

	$node->append_conf('postgresql.conf', "hymt.model = '$long'");
	$node->reload;
	restart_workers($node);
	is(finish(background($node, translate('hello')))->{err}, 'ERROR:  58P01', 'a path that is too long: the caller is told');
	like(status($node, 'last_error'), qr/hymt\.model is longer than a path may be/, 'a path that is too long: and why');
	is(outcome('mock-good'), 'zh>en: hello', 'a good model ends it');
}

# An engine program that is not there.
is_undisturbed($node, $identity, 'in the end');
$node->append_conf('postgresql.conf', "hymt.engine = '/nonexistent/hymt-engine'");
$node->restart;
is(finish(background($node, translate('hello')))->{err}, 'ERROR:  58P01', 'no engine program: the caller is told');
like(status($node, 'last_error'), qr{/nonexistent/hymt-engine}, 'no engine program: hymt_status names it');
{
	$node->safe_psql('postgres', 'CREATE ROLE guest; CREATE ROLE reader; GRANT pg_read_all_settings TO reader; '
		  . 'GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO guest, reader');
	my (undef, undef, $guest) = $node->psql('postgres', 'SET ROLE guest; ' . translate('hello'));
	like($guest, qr/ERROR:  the translation model could not be loaded/, 'no engine program: any role is told');
	unlike($guest, qr/nonexistent/, 'no engine program: but not where it should be');
	my (undef, undef, $reader) = $node->psql('postgres', 'SET ROLE reader; ' . translate('hello'));
	like($reader, qr{DETAIL:.*/nonexistent/hymt-engine}, 'no engine program: who may see settings is');
}

# One that is a directory.
my $elsewhere = $node->basedir;
$node->append_conf('postgresql.conf', "hymt.engine = '$elsewhere'");
$node->restart;
is(finish(background($node, translate('hello')))->{err}, 'ERROR:  42501', 'a directory as engine program: the caller is told');
like(status($node, 'last_error'), qr/not a regular file/, 'a directory as engine program: hymt_status says why');

$node->stop;
done_testing();
