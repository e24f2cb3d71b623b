# Streams: pieces arrive while the rest is computed, every way to leave one frees the engine, engines that die in the middle
# change nothing or say so, and cursors that nobody reads on are in nobody's way.
#
# Where an answer stops in the middle it waits for a file, so that what a session has seen by then is certain.
use strict;
use warnings;

use HymtTest;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $node = hymt_node('stream', conf => <<'END');
hymt.queue_slots = 64
statement_timeout = '120s'
END
my $number_of_files = 0;

# A file that does not exist yet, for an answer to wait for.
sub new_file
{
	return $node->basedir . '/go_on_' . ++$number_of_files;
}

sub create
{
	my ($file) = @_;

	append_to_file($file, '');
}

# SQL that has a stream of these parts.
sub stream
{
	my ($file, $parts, $arguments) = @_;

	return "SELECT hymt_translate_stream(E'mock:stream $file\\n$parts', 'zh', 'en'" . ($arguments // '') . ')';
}

# --- sessions that are led by the hand -----------------------------------------------------------------------------

my $number_of_markers = 0;

sub open_session
{
	my ($database) = @_;
	my %session = (in => '', out => '', err => '');

	$session{run} = IPC::Run::start(
		[ 'psql', '-XAtq', '-v', 'VERBOSITY=sqlstate', '-P', 'null=(null)', '-d', $node->connstr($database // 'postgres') ],
		'<', \$session{in}, '>', \$session{out}, '2>', \$session{err});
	$session{pid} = ask(\%session, 'SELECT pg_backend_pid()');
	return \%session;
}

sub pump_session
{
	my ($session, $pattern) = @_;
	my $until = time + HymtTest::LIMIT_SECONDS;

	while ($session->{out} !~ $pattern && time < $until)
	{
		$session->{run}->pump_nb;
		usleep(2_000);
	}
	return $session->{out} =~ $pattern;
}

# What a session begins to do.
sub say_to
{
	my ($session, $sql) = @_;

	$session->{out} = $session->{err} = '';
	$session->{marker} = 'marker ' . ++$number_of_markers;
	$session->{in} .= "$sql;\n\\echo $session->{marker}\n\\warn $session->{marker}\n";
	$session->{run}->pump_nb;
}

# What came of it: rows and errors.
sub answer_of
{
	my ($session) = @_;
	my $marker = $session->{marker};

	pump_session($session, qr/^\Q$marker\E\n/m) or return "no answer: $session->{out}$session->{err}";
	while ($session->{err} !~ /^\Q$marker\E\n/m)
	{
		$session->{run}->pump_nb;
		usleep(2_000);
	}
	my $answer = $session->{out} . join '', grep { !/NOTICE/ } split /^/, $session->{err};
	$answer =~ s/^\Q$marker\E\n//mg;
	chomp $answer;
	return $answer;
}

sub ask
{
	my ($session, $sql) = @_;

	say_to($session, $sql);
	return answer_of($session);
}

sub close_session
{
	my ($session) = @_;

	$session->{in} .= "\\q\n";
	$session->{run}->finish;
}

# The queue is empty, and so is the engine: it was told of whatever has ended.
sub is_left_alone
{
	my ($name) = @_;

	wait_for_all_free($node, $name);
	is($node->safe_psql('postgres', translate('mock:batch 1')), 1, "$name: the engine works for nobody else");
}

# --- pieces --------------------------------------------------------------------------------------------------------

scenario 'pieces arrive while the rest is computed' => sub {
	my $file = new_file();
	my $session = open_session();

	is(ask($session, 'BEGIN; DECLARE c CURSOR FOR ' . stream($file, 'one |*|three|four')), '', 'a cursor');
	is(status($node, 'slots_in_use'), 0, 'nothing is asked before the first row is wanted');
	is(ask($session, 'FETCH c'), 'one ', 'the first piece');
	is($node->safe_psql('postgres', 'SELECT state, class FROM hymt_stat_activity'), 'claimed|ahead', 'the engine has it still');
	say_to($session, 'FETCH c');
	wait_until($node, "SELECT count(*) FROM pg_stat_activity WHERE pid = $session->{pid} AND wait_event_type = 'Extension'", 1);
	create($file);
	my $pieces = answer_of($session);
	like($pieces, qr/^three(four)?$/, 'the next one, when it is there');
	$pieces .= ask($session, 'FETCH ALL FROM c');
	is($pieces =~ s/\n//gr, 'threefour', 'and the rest');
	is(ask($session, 'FETCH c'), '', 'then nothing');
	is(ask($session, 'COMMIT'), '', 'the end');
	close_session($session);
	is_left_alone('read to the end');
};

scenario 'psql with FETCH_COUNT shows the first words' => sub {
	my $file = new_file();
	my $session = background($node, "\\set FETCH_COUNT 1\n" . stream($file, 'one |*|two') . ';');

	ok(pump_session($session, qr/^one /m), 'before the rest is there');
	is($session->{out}, 'one ', 'and nothing else');
	create($file);
	is(finish($session)->{out}, "one \ntwo", 'then the rest');
};

# psql of version 17 and later reads that way, too.
scenario 'a client that takes row by row, without a cursor' => sub {
	my $file = new_file();
	my $socket = $node->raw_connect;
	my $read = sub {
		my ($length) = @_;
		my $got = '';

		while (length $got < $length)
		{
			sysread($socket, $got, $length - length $got, length $got) or die 'the server closed the connection';
		}
		return $got;
	};
	# The values of rows until a message of this type.
	my $rows_until = sub {
		my ($end) = @_;
		my @rows;

		while (1)
		{
			my ($type, $length) = unpack 'aN', $read->(5);
			my $body = $read->($length - 4);
			push @rows, substr $body, 6 if $type eq 'D';
			return @rows if $type eq $end;
		}
	};
	my $startup = pack 'NZ*Z*Z*Z*x', 196608, 'user', scalar getpwuid($<), 'database', 'postgres';
	my $query = pack 'Z*', stream($file, 'one |two |*|three');

	local $SIG{ALRM} = sub { die 'no row came' };
	alarm HymtTest::LIMIT_SECONDS;
	syswrite $socket, pack('N', 4 + length $startup) . $startup;
	$rows_until->('Z');
	syswrite $socket, 'Q' . pack('N', 4 + length $query) . $query;
	is(join('', $rows_until->('D')), 'one ', 'the first piece, before there are 8 kB of them');
	create($file);
	is(join('', $rows_until->('Z')), 'two three', 'the rest');
	alarm 0;
	close $socket;
};

scenario 'in FROM, in an INSERT, with others in a list' => sub {
	my $file = new_file();

	create($file);
	my $call = stream($file, 'a|b|c') =~ s/^SELECT //r;
	is($node->safe_psql('postgres', "SELECT string_agg(p, '' ORDER BY n) FROM $call WITH ORDINALITY AS s(p, n)"), 'abc', 'FROM');
	is($node->safe_psql('postgres', "CREATE TEMP TABLE t AS SELECT $call AS p; SELECT string_agg(p, '') FROM t"), 'abc', 'CREATE TABLE AS');
	is($node->safe_psql('postgres', "SELECT string_agg(a, ''), string_agg(b, ''), max(g) FROM (SELECT $call AS a, " .
			(stream($file, 'd|e') =~ s/^SELECT //r) . ' AS b, generate_series(1, 9) AS g) AS s'), 'abc|de|9', 'several, which run together');
	is($node->safe_psql('postgres', "SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; " .
			"SET min_parallel_table_scan_size = 0; CREATE TABLE rows AS SELECT g FROM generate_series(1, 20) AS g; " .
			"SELECT count(*) FROM (SELECT g, string_agg(p, '') AS w FROM (SELECT g, $call AS p FROM rows) AS s GROUP BY g) AS x WHERE w = 'abc'; DROP TABLE rows"),
		20, 'parallel plans');
};

scenario 'an answer that nobody reads' => sub {
	my $file = new_file();
	my $session = open_session();

	ask($session, 'BEGIN; DECLARE c CURSOR FOR ' . stream($file, 'one|+1500|+1500|+1500|+1500|*|end'));
	my @rows = ask($session, 'FETCH c');
	# Ten answers mean ten steps, and what was sent before them has arrived.
	$node->safe_psql('postgres', translate("step $_")) foreach 1 .. 10;
	create($file);
	push @rows, split /\n/, ask($session, 'FETCH ALL FROM c');
	like(join('', @rows), qr/^one0{6000}end$/, 'comes whole');
	cmp_ok(length $rows[-1], '>=', 3003, 'what found no room comes with the end');
	ask($session, 'COMMIT');
	close_session($session);
};

# --- leaving -------------------------------------------------------------------------------------------------------

my %way = (
	'CLOSE' => [ '', 'CLOSE c', '' ],
	'ROLLBACK' => [ '', 'ROLLBACK', '' ],
	'COMMIT' => [ '', 'COMMIT', '' ],
	'ROLLBACK TO' => [ 'SAVEPOINT s;', 'ROLLBACK TO s', '' ],
	'another error' => [ '', 'SELECT 1 / 0', 'ERROR:  22012' ],
);

scenario 'whoever leaves a stream frees its slot and the engine' => sub {
	foreach my $name (sort keys %way)
	{
		my ($before, $end, $expected) = @{ $way{$name} };
		my $session = open_session();

		is(ask($session, "BEGIN; $before DECLARE c CURSOR FOR " . stream(new_file(), 'one |*|two') . '; FETCH c'), 'one ', "$name: begun");
		is(ask($session, $end), $expected, "$name: left");
		is_left_alone($name);
		ask($session, 'ROLLBACK');
		is(ask($session, translate('again')), 'zh>en: again', "$name: the session goes on");
		close_session($session);
	}
	is($node->safe_psql('postgres', stream(new_file(), 'one |*|two') . ' LIMIT 1'), 'one ', 'LIMIT 1');
	is_left_alone('LIMIT');
	is($node->safe_psql('postgres', <<"END"), 'one ', 'a function that returns after one FETCH');
CREATE FUNCTION first_piece() RETURNS text LANGUAGE plpgsql AS \$\$
DECLARE
	c CURSOR FOR @{[stream(new_file(), 'one |*|two')]};
	p text;
BEGIN
	OPEN c;
	FETCH c INTO p;
	RETURN p;
END \$\$;
SELECT first_piece();
END
	is_left_alone('function');
};

scenario 'a stream survives the end of a subtransaction in which it was read' => sub {
	my $file = new_file();
	my $session = open_session();

	ask($session, 'BEGIN; DECLARE c CURSOR FOR ' . stream($file, 'one |*|two'));
	is(ask($session, 'SAVEPOINT s; FETCH c; ROLLBACK TO s'), 'one ', 'its first piece, in one that is rolled back');
	create($file);
	is(ask($session, 'SAVEPOINT t; FETCH c; RELEASE t'), 'two', 'its second piece, in one that is not');
	ask($session, 'COMMIT');
	close_session($session);
};

scenario 'sessions that end' => sub {
	my $session = open_session();

	ask($session, 'BEGIN; DECLARE c CURSOR FOR ' . stream(new_file(), 'one |*|two') . '; FETCH c');
	say_to($session, 'FETCH c');
	wait_until($node, "SELECT count(*) FROM pg_stat_activity WHERE pid = $session->{pid} AND wait_event_type = 'Extension'", 1);
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($session->{pid})");
	is(answer_of($session), 'ERROR:  57014', 'cancelled in the middle');
	is_left_alone('cancel');
	is(ask($session, 'ROLLBACK; BEGIN; DECLARE c CURSOR FOR ' . stream(new_file(), 'one |*|two') . '; FETCH c'), 'one ', 'again');
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($session->{pid})");
	is_left_alone('terminated while its cursor is idle');
	eval { $session->{run}->finish };

	$session = open_session();
	ask($session, 'BEGIN; DECLARE c CURSOR FOR ' . stream(new_file(), 'one |*|two') . '; FETCH c');
	$session->{run}->kill_kill;
	is_left_alone('a client that vanished');
};

# --- engines -------------------------------------------------------------------------------------------------------

sub kill_engine
{
	my $pid = status($node, 'engine_pid');

	kill 'KILL', $pid;
	wait_for_status($node, "engine_pid IS NOT NULL AND engine_pid <> $pid AND state = 'ready'");
}

scenario 'an engine that dies in the middle' => sub {
	my $identity = server_identity($node);
	my $file = new_file();
	my $session = open_session();

	is(ask($session, 'BEGIN; DECLARE c CURSOR FOR ' . stream($file, 'one |*|two ||three') . '; FETCH c'), 'one ', 'begun');
	kill_engine();
	create($file);
	is(ask($session, 'FETCH ALL FROM c') =~ s/\n//gr, 'two three', 'the next one goes on where it stopped');
	ask($session, 'COMMIT');
	is($node->safe_psql('postgres', 'SELECT retries FROM hymt_stat'), 1, 'it was begun anew');
	is($node->safe_psql('postgres', "SELECT string_agg(p, '') FROM (" . stream($file, 'one |two') . ' AS p) AS s'), 'one two', 'and the next stream is as ever');
	close_session($session);
	is_undisturbed($node, $identity, 'engine death');
};

scenario 'a worker that ends in the middle' => sub {
	my $file = new_file();
	my $session = open_session();

	is(ask($session, 'BEGIN; DECLARE c CURSOR FOR ' . stream($file, 'one |*|two ||three') . '; FETCH c'), 'one ', 'begun');
	restart_workers($node);
	create($file);
	is(ask($session, 'FETCH ALL FROM c') =~ s/\n//gr, 'two three', 'the next one goes on where it stopped');
	ask($session, 'COMMIT');
	close_session($session);
};

scenario 'a model that is replaced in the middle' => sub {
	my $file = new_file();
	my $session = open_session();
	my $engine = status($node, 'engine_pid');

	is(ask($session, 'BEGIN; DECLARE c CURSOR FOR ' . stream($file, '#|*|, and more') . '; FETCH c'), $engine, 'begun');
	switch_model($node, 'mock-other');
	wait_for_status($node, "model = 'mock-other' AND state = 'ready'");
	is($node->safe_psql('postgres', translate('mock:pid')), status($node, 'engine_pid'), 'the next engine serves others');
	isnt(status($node, 'engine_pid'), $engine, 'which is another one');
	create($file);
	is(ask($session, 'FETCH ALL FROM c') =~ s/\n//gr, ', and more', 'the former one finishes what it has begun');
	ask($session, 'COMMIT');
	close_session($session);
	wait_for_end($engine);
};

scenario 'a text of which engines die' => sub {
	my $session = open_session();

	is(ask($session, "SELECT hymt_translate_stream('mock:crash', 'zh', 'en')"), 'ERROR:  MT002', 'is told as ever');
	is(ask($session, "SELECT hymt_translate_stream('mock:crash', 'zh', 'en', on_error => 'source')"), 'mock:crash', 'on_error decides');
	close_session($session);
};

scenario 'an engine whose answer begins otherwise' => sub {
	foreach my $case ([ '', 'ERROR:  MT009' ], [ ", on_error => 'null'", '(null)' ], [ ", on_error => 'source'", '(null)' ])
	{
		my $file = new_file();
		my $session = open_session();

		like(ask($session, 'BEGIN; DECLARE c CURSOR FOR ' . stream($file, '#|*|, and more', $case->[0]) . '; FETCH c'), qr/^\d+$/, 'begun');
		kill_engine();
		is(ask($session, 'FETCH c'), $case->[1], "it is told$case->[0]");
		ask($session, 'ROLLBACK');
		close_session($session);
		is_left_alone('another beginning');
	}
	# The same, where only the end shows it.
	my $session = open_session();
	my $file = new_file();
	like(ask($session, 'BEGIN; DECLARE c CURSOR FOR ' . stream($file, '#|*|') . '; FETCH c'), qr/^\d+$/, 'begun');
	create("$file.mute");
	kill_engine();
	create($file);
	is(ask($session, 'FETCH c'), 'ERROR:  MT009', 'it is told at the end');
	ask($session, 'ROLLBACK');
	close_session($session);
};

scenario 'failures after pieces' => sub {
	my $file = new_file();
	my $parts = 'one |*|!internal';

	foreach my $case ([ '', 'ERROR:  MT003' ], [ ", on_error => 'null'", '(null)' ], [ ", on_error => 'source'", '(null)' ])
	{
		my $session = open_session();

		unlink $file;
		is(ask($session, 'BEGIN; DECLARE c CURSOR FOR ' . stream($file, $parts, $case->[0]) . '; FETCH c'), 'one ', 'a piece');
		create($file);
		is(ask($session, 'FETCH ALL FROM c'), $case->[1], "then it fails$case->[0]");
		ask($session, 'ROLLBACK');
		close_session($session);
	}
	like($node->safe_psql('postgres', stream($file, '!internal', ", on_error => 'source'")), qr/^mock:stream/, 'before any: the source');

	$node->safe_psql('postgres', "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
	$node->safe_psql('latin', 'CREATE EXTENSION hymt');
	foreach my $case ([ '', 'ERROR:  22P05' ], [ ", on_error => 'null'", '(null)' ])
	{
		my $session = open_session('latin');

		unlink $file;
		is(ask($session, 'BEGIN; DECLARE c CURSOR FOR ' . stream($file, 'one |*|%|two', $case->[0]) . '; FETCH c'), 'one ', 'a piece');
		create($file);
		is(ask($session, 'FETCH ALL FROM c'), $case->[1], "then a character that the encoding lacks$case->[0]");
		ask($session, 'ROLLBACK');
		close_session($session);
	}
	is_left_alone('failures');
};

scenario 'pieces out of place' => sub {
	my $engine = status($node, 'engine_pid');

	is($node->safe_psql('postgres', translate('mock:afterwards')), 'in time', 'a piece after the answer');
	is($node->safe_psql('postgres', translate('after that')), 'zh>en: after that', 'is dropped');
	is(status($node, 'engine_pid'), $engine, 'and is no fault');
	my (undef, undef, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\n" . translate('mock:uninvited'));
	like($err, qr/MT003/, 'a piece that nobody asked for is the end of the conversation');
	isnt(status($node, 'engine_pid'), $engine, 'and of that engine');
	(undef, undef, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\n" . stream(new_file(), 'ab|/|cd'));
	like($err, qr/MT003/, 'so is one that ends in the middle of a character');
};

# --- company -------------------------------------------------------------------------------------------------------

scenario 'single calls share the work of a stream, and survive it' => sub {
	my $file = new_file();
	my $session = open_session();
	my $joined = $node->safe_psql('postgres', 'SELECT joined FROM hymt_stat');

	ask($session, 'BEGIN; DECLARE c CURSOR FOR ' . stream($file, 'one |*|two') . '; FETCH c');
	my $other = background($node, stream($file, 'one |*|two') =~ s/_stream//r);
	wait_until($node, "SELECT count(*) FROM hymt_stat_activity WHERE state = 'following'", 1);
	ask($session, 'CLOSE c');
	create($file);
	is(finish($other)->{out}, 'one two', 'the answer');
	is($node->safe_psql('postgres', 'SELECT joined FROM hymt_stat') - $joined, 1, 'one request less');
	# A stream follows nobody: it would get no pieces.
	$file = new_file();
	$other = background($node, stream($file, 'one |*|two') =~ s/_stream//r);
	wait_for_slots($node, 1);
	is(ask($session, 'DECLARE d CURSOR FOR ' . stream($file, 'one |*|two') . '; FETCH d'), 'one ', 'a stream beside an equal request');
	ask($session, 'COMMIT');
	create($file);
	is(finish($other)->{out}, 'one two', 'which is answered by itself');
	close_session($session);
};

scenario 'open streams block nobody' => sub {
	my @sessions = map { open_session() } 1 .. 8;
	my $early = 0;
	my $go = new_file();

	create($go);
	foreach my $session (@sessions)
	{
		ask($session, 'BEGIN');
		foreach my $cursor (1 .. 12)
		{
			# Where there is no room for a stream the answer comes whole, so it must not wait for anything.
			my $in_one_piece = ask($session, "DECLARE c$cursor CURSOR FOR " . stream($go, "a|b|c|d|e|f|g|h $session->{pid} $cursor") . "; FETCH c$cursor");
			$early++ if $in_one_piece !~ /h \d+ \d+$/;
		}
	}
	cmp_ok($early, '>', 8, "$early of 96 have given their first piece");
	my $held = status($node, 'slots_in_use');
	cmp_ok($held, '<=', 24, "they have $held slots, no more than half of what bulk requests may have");
	is($node->safe_psql('postgres', translate('a single call')), 'zh>en: a single call', 'a single call');
	is($node->safe_psql('postgres', "SELECT cardinality(hymt_translate(ARRAY(SELECT 'text ' || g FROM generate_series(1, 300) AS g), 'zh', 'en'))"), 300, 'an array');
	is(ask($sessions[0], translate('a single call of one of them')), 'zh>en: a single call of one of them', 'a call of a session that has streams');
	is(ask($sessions[0], 'FETCH ALL FROM c1') =~ s/\n//gr . '', 'bcdefgh ' . $sessions[0]{pid} . ' 1', 'which go on');
	foreach my $session (@sessions)
	{
		ask($session, 'COMMIT');
		close_session($session);
	}
};

scenario 'the limit of a role' => sub {
	my $session = open_session();
	my $file = new_file();

	ask($session, 'SET hymt.max_requests_per_role = 2; BEGIN; DECLARE c CURSOR FOR ' . stream($file, 'one |*|two'));
	is(ask($session, 'FETCH c'), 'one ', 'one stream of two requests');
	is(ask($session, translate('beside it')), 'zh>en: beside it', 'leaves room for a call');
	create($file);
	is(ask($session, stream($file, 'one |two')), 'one two', 'and for no second stream, which comes whole');
	is(ask($session, 'SET hymt.max_requests_per_role = 1; CLOSE c; ' . stream($file, 'one |two')), 'one two', 'as with a limit of one');
	ask($session, 'COMMIT');
	close_session($session);
};

is($node->safe_psql('postgres', <<'END'), 't', 'every request has one end');
SELECT requests = answered + cancelled + failed_language + failed_too_long + failed_unfinished + failed_crashed + failed_engine
  + failed_memory + failed_timeout + failed_unavailable + failed_other FROM hymt_stat
END
$node->stop;
done_testing();
