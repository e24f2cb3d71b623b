# New settings by reload: the engine that serves goes on until the new one is ready, and for good if that cannot be
# used.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $node = hymt_node('switch', conf => "hymt.engine_timeout = '3s'\n");
my $identity = server_identity($node);

# A model directory whose engines start as told.
sub model_with_fault
{
	my ($name, $fault) = @_;
	my $directory = model_directory($node, $name);

	append_to_file("$directory/fault", "$fault\n");
	return $directory;
}

sub calls
{
	my ($count, $name) = @_;

	return "SELECT count(*) FROM generate_series(1, $count) AS i "
	  . "WHERE hymt_translate('$name ' || i, 'zh', 'en') = 'zh>en: $name ' || i";
}

sub is_answering
{
	my ($engine, $name) = @_;
	my $session = finish(background($node, translate('mock:pid')));

	is("$session->{out}$session->{err}", $engine, "$name: the same engine answers");
	cmp_ok($session->{took}, '<', PROMPT_SECONDS, "$name: promptly");
	return;
}

sub log_count
{
	my ($pattern, $start) = @_;
	my $log = slurp_file($node->logfile, $start);

	return scalar(() = $log =~ /$pattern/g);
}

scenario 'under load' => sub {
	wait_for_status($node, "state = 'ready'");
	my $old = status($node, 'engine_pid');
	my $before = status($node, 'model, fingerprint');
	my $restarts = status($node, 'restarts');
	my @sessions = map { background($node, calls(500, "load $_")) } 1 .. 4;

	usleep(300_000);
	switch_model($node, 'mock-load-slow-2');
	ok(wait_for_status($node, "state = 'ready' AND loading_phase = 'loading slowly' AND loading_percent > 20"),
		'progress is shown while the old engine serves');
	is(status($node, 'engine_pid'), $old, 'the old engine serves meanwhile');
	is(status($node, 'model, fingerprint'), $before, 'model and fingerprint are its own');
	is_answering($old, 'while the new one loads');

	ok(wait_for_status($node, "state = 'ready' AND model = 'mock-load-slow-2'"), 'the new one takes over');
	isnt(status($node, 'model, fingerprint'), $before, 'now model and fingerprint have changed');
	is(status($node, 'loading_phase'), '', 'nothing is loading any more');
	is(status($node, 'restarts'), $restarts, 'that is no crash');
	ok(wait_for_end($old), 'the old engine is gone');
	is_answering(status($node, 'engine_pid'), 'after the switch');
	is(join(' ', map { finish($_)->{out} . $_->{err} } @sessions), '500 500 500 500', 'no call failed');
};

scenario 'with a long request in flight' => sub {
	my $old = status($node, 'engine_pid');
	my $sleeper = background($node, "SELECT translation, model FROM hymt_translate_details('mock:sleep 4', 'zh', 'en')");
	my $leaver = background($node, "SET statement_timeout = '2s'; " . translate('mock:sleep 30'));

	wait_for_slots($node, 2);
	usleep(200_000);
	switch_model($node, 'mock-next');
	ok(wait_for_status($node, "model = 'mock-next'"), 'the new engine does not wait for it');
	isnt(status($node, 'engine_pid'), $old, 'it is another one');
	is_answering(status($node, 'engine_pid'), 'beside the old one');
	ok(process_lives($old), 'the old one still lives');
	is(finish($leaver)->{err}, 'ERROR:  57014', 'requests of the old engine can be left');
	is(finish($sleeper)->{out}, 'awake|mock-load-slow-2', 'what was in flight is finished, and known to be of the old model');
	ok(wait_for_end($old), 'then the old engine ends');
};

scenario 'the old engine dies with requests in flight after the switch' => sub {
	my $old = status($node, 'engine_pid');
	my $sleeper = background($node, translate('mock:sleep 2'));

	wait_for_slots($node, 1);
	usleep(200_000);
	switch_model($node, 'mock-plain');
	ok(wait_for_status($node, "model = 'mock-plain'"), 'the new engine is there');
	kill 'KILL', $old;
	is(finish($sleeper)->{out}, 'awake', 'the new one answers instead');
};

# Each is tried once per reload, and leaves what was in force in force.
my $engine = status($node, 'engine_pid');
my $before = status($node, 'model, fingerprint, family');
my @unusable = (
	[ model_with_fault('refused', 'refuse broken'), 'asked to refuse' ],
	[ model_with_fault('dies', 'exit-while-loading'), 'exit code 3' ],
	[ model_with_fault('hangs', 'hang-at-start'), 'no progress' ],
	[ model_with_fault('dead', 'exit-at-start'), 'exit code 1' ],
	[ model_with_fault('garbage', 'garbage-hello'), 'protocol' ],
	[ model_with_fault('skewed', 'wrong-version'), 'restart PostgreSQL' ],
	[ $node->basedir . '/nowhere', 'no such directory' ],
);
foreach my $case (@unusable)
{
	my ($model, $reason) = @$case;
	my ($name) = $model =~ m{([^/]+)$};

	scenario "not usable: $name" => sub {
		my $start = -s $node->logfile;
		switch_model($node, $model);
		ok(wait_for_status($node, "last_error LIKE '%$reason%' AND last_error LIKE '%$name%'"), 'hymt_status says why');
		is_answering($engine, 'afterwards');
		is(status($node, 'model, fingerprint, family'), $before, 'model and fingerprint are as before');
		is(status($node, 'state'), 'ready', 'the state too');
		is(log_count('new settings are not in force', $start), 1, 'the log says so once');
	};
}

scenario 'a model that could not be used is tried at the next reload only' => sub {
	my $start = -s $node->logfile;

	usleep(2_500_000);
	is(log_count('no such directory', $start), 0, 'not by itself');
	$node->reload;
	usleep(200_000) while !log_count('no such directory', $start);
	is_answering($engine, 'after another attempt');
	mkdir $node->basedir . '/nowhere';
	$node->reload;
	ok(wait_for_status($node, "model = 'nowhere'"), 'it is used when it can be');
};

scenario 'after a failed switch a dead engine is replaced by one with the old settings' => sub {
	switch_model($node, $node->basedir . '/refused');
	ok(wait_for_status($node, "last_error LIKE '%asked to refuse%'"), 'refused');
	my $old = status($node, 'engine_pid');
	kill 'KILL', $old;
	wait_for_end($old);
	is($node->safe_psql('postgres', translate('hello')), 'zh>en: hello', 'it translates');
	is(status($node, 'model'), 'nowhere', 'with the old model');
};

scenario 'the engine that serves dies while another one loads' => sub {
	switch_model($node, 'mock-load-slow-3');
	ok(wait_for_status($node, "loading_phase = 'loading slowly'"), 'loading');
	my $sleeper = background($node, translate('mock:sleep 1'));
	wait_for_slots($node, 1);
	kill 'KILL', status($node, 'engine_pid');
	is(finish($sleeper)->{out}, 'awake', 'its request is answered');
	ok(wait_for_status($node, "state = 'ready' AND model = 'mock-load-slow-3'"), 'the switch happens');
};

scenario 'settings that change again and again' => sub {
	foreach my $model ('mock-load-slow-2', 'mock-load-slow-4', 'mock-one', 'mock-two', 'mock-load-slow-1')
	{
		switch_model($node, $model);
		usleep(100_000);
		is(finish(background($node, translate("at $model")))->{out}, "zh>en: at $model", "$model: translates");
	}
	ok(wait_for_status($node, "state = 'ready' AND model = 'mock-load-slow-1'"), 'the last one counts');
	switch_model($node, 'mock-load-slow-9');
	wait_for_status($node, "loading_phase = 'loading slowly'");
	switch_model($node, 'mock-load-slow-1');
	my $started = time;
	ok(wait_for_status($node, 'loading_phase IS NULL'), 'a change that is taken back ends the new engine');
	cmp_ok(time - $started, '<', PROMPT_SECONDS, 'at once');
};

scenario 'other settings than the model' => sub {
	my $old = status($node, 'engine_pid');

	$node->append_conf('postgresql.conf', "hymt.prompt_family = 'Hy-MT2'");
	$node->reload;
	ok(wait_for_status($node, "state = 'ready' AND family = 'hy-mt2'"), 'the prompt family, in the spelling of the engine');
	isnt(status($node, 'engine_pid'), $old, 'with another engine');
	$node->append_conf('postgresql.conf', "hymt.prompt_family = 'nonsense'");
	$node->reload;
	usleep(300_000);
	is(status($node, 'family'), 'hy-mt2', 'a value that is not allowed changes nothing');
};

# Where memory does not allow two engines, one takes the other's place.
scenario 'no room for both' => sub {
	my $old = status($node, 'engine_pid');
	my $sleeper = background($node, translate('mock:sleep 2'));

	wait_for_slots($node, 1);
	usleep(200_000);
	switch_model($node, model_with_fault('large', 'no-room'));
	usleep(700_000);
	ok(process_lives($old), 'the old engine finishes what it has');
	my $later = background($node, translate('mock:pid'));
	is(finish($sleeper)->{out}, 'awake', 'what was in flight is finished');
	isnt(finish($later)->{out}, $old, 'what came meanwhile waits for the new engine');
	is(status($node, 'model, state'), 'large|ready', 'which is there');
	ok(!process_lives($old), 'and the old one is not');
};

scenario 'no room for both, and the new model cannot be used' => sub {
	my $old = status($node, 'engine_pid');

	switch_model($node, model_with_fault('large_and_broken', 'no-room-then-refuse'));
	ok(wait_for_status($node, "last_error LIKE '%large_and_broken%asked to refuse%'"), 'hymt_status says why');
	is($node->safe_psql('postgres', translate('hello')), 'zh>en: hello', 'it translates');
	is(status($node, 'model, state'), 'large|ready', 'with the old model');
	isnt(status($node, 'engine_pid'), $old, 'loaded again');
	my $again = status($node, 'engine_pid');
	my $start = -s $node->logfile;
	my $until = time + 30;
	$node->reload;
	usleep(100_000) while time < $until && !log_count('new settings are not in force', $start);
	is(log_count('new settings are not in force', $start), 1, 'the next reload tries it again');
	is_answering($again, 'without making room for it');
	$node->append_conf('postgresql.conf', 'hymt.threads = 1');
	$node->reload;
	$until = time + 30;
	usleep(100_000) while time < $until && log_count('new settings are not in force', $start) < 2;
	is($node->safe_psql('postgres', translate('hello')), 'zh>en: hello', 'settings that change again are of no use either');
	isnt(status($node, 'engine_pid'), $again, 'but they are tried in its place');
	switch_model($node, 'mock-plain');
	ok(wait_for_status($node, "state = 'ready' AND model = 'mock-plain'"), 'and another one can be had');
};

is_undisturbed($node, $identity, 'in the end');
$node->stop;
done_testing();
