# Answers that were read ahead and are left lying give way to whoever comes: to new sessions, to new statements of the same
# session, within what a role may have, and within queue memory. Cursors that lost theirs go on with the right answers, and
# in batches, after all that can happen in between.
#
# A row "mock:batch 40 …" is answered only when 40 requests are in one step of the engine: a session whose window is small
# would wait for ever.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

# Of hymt.queue_slots, with hymt.bulk_share at 75 %: half of what bulk requests may have.
use constant AHEAD_SLOTS => 384;
# An answer lapses after 2 s.
use constant LAPSE_SECONDS => 3;

my $node = hymt_node('idle', model => 'mock-step-5-64', conf => <<'END');
statement_timeout = '60s'
max_connections = 80
hymt.queue_slots = 1024
END
my $files = 0;
my $held = "SELECT count(*) FROM hymt_stat_activity WHERE class = 'ahead' AND state IN ('done', 'failed')";

$node->safe_psql('postgres', <<'END');
CREATE TABLE t (id int PRIMARY KEY, title text);
INSERT INTO t SELECT g, 'text ' || g FROM generate_series(1, 100) g;
CREATE TABLE many (id int PRIMARY KEY, title text, en text);
INSERT INTO many SELECT g, CASE WHEN g BETWEEN 200 AND 239 THEN 'mock:batch 40 ' ELSE 'title ' END || g, NULL FROM generate_series(1, 500) g;
ANALYZE;
END

sub file
{
	return $node->basedir . '/file' . ++$files;
}

# In a script of psql: waits outside of the server.
sub until_there
{
	my ($file) = @_;

	return "\\! until [ -e '$file' ]; do sleep 0.1; done\n";
}

# A cursor that is moved over 40 rows: over the texts of t with something behind them, or of another table.
sub declare
{
	my ($cursor, $suffix, $table) = @_;

	$table //= 't';
	return "DECLARE $cursor CURSOR FOR SELECT hymt_translate(title || '$suffix', 'zh', 'en') FROM $table ORDER BY id;\nMOVE 40 IN $cursor;\n";
}

# What the rows from 41 to the last one are.
sub rows
{
	my ($suffix, $last) = @_;

	return join '', map { "zh>en: text $_$suffix\n" } 41 .. $last // 100;
}

# Waits until they do nothing in their transactions, and their requests are answered.
sub are_idle
{
	my $names = join ',', map { "'$_->{name}'" } @_;

	return ok(
		wait_until($node, "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND application_name IN ($names)", scalar @_) &&
		wait_until($node, "SELECT count(*) FROM hymt_stat_activity h JOIN pg_stat_activity a USING (pid) WHERE h.state NOT IN ('done', 'failed') AND a.application_name IN ($names)", 0),
		scalar(@_) . ' sessions are idle');
}

# Sessions with four cursors each that stand still at row 40, and go on when their file is there.
sub idle_sessions
{
	my ($count, $suffix) = @_;
	my @sessions;

	foreach my $number (1 .. $count)
	{
		my $go = file();
		my $sql = "BEGIN;\n";

		$sql .= declare("c$_", " $suffix $number.$_") foreach 1 .. 4;
		$sql .= until_there($go);
		$sql .= "FETCH ALL FROM c$_;\n" foreach 1 .. 4;
		push @sessions, background($node, "${sql}COMMIT;");
		$sessions[-1]{go} = $go;
		$sessions[-1]{expected} = join '', map { rows(" $suffix $number.$_") } 1 .. 4;
	}
	are_idle(@sessions);
	return @sessions;
}

sub is_going_on
{
	my ($name, @sessions) = @_;
	my $wrong = 0;

	foreach my $session (@sessions)
	{
		append_to_file($session->{go}, '');
		finish($session);
		$wrong++ if $session->{err} ne '' || "$session->{out}\n" ne $session->{expected};
		diag("$session->{err}: $session->{out}") if $wrong == 1;
	}
	return is($wrong, 0, "$name: all cursors go on and are right");
}

# A statement of 500 rows, which ends only if 40 of its texts are together in the engine. Returns how many it asked ahead.
sub asked_ahead
{
	my $plan = $node->safe_psql('postgres', "EXPLAIN (ANALYZE, TIMING OFF) UPDATE many SET en = hymt_translate(title, 'zh', 'en')");

	is($node->safe_psql('postgres', "SELECT count(*) FILTER (WHERE en ~ '^[0-9]+\$' AND en::int >= 40), count(*) FILTER (WHERE en = 'zh>en: title ' || id) FROM many"),
		'40|460', 'all rows are right');
	return $plan =~ /Texts Asked Ahead: (\d+)/ ? $1 : 0;
}

sub is_counted
{
	my ($name) = @_;

	return is($node->safe_psql('postgres', 'SELECT requests - answered - cancelled - failed_language - failed_too_long - failed_unfinished - failed_crashed ' .
			'- failed_engine - failed_memory - failed_timeout - failed_unavailable - failed_other FROM hymt_stat'),
		0, "$name: every request was counted once at its end");
}

scenario 'forty idle windows give way' => sub {
	my @idle = idle_sessions(10, 'a');
	my $before = $node->safe_psql('postgres', $held);

	cmp_ok($before, '>', AHEAD_SLOTS * 0.8, "they hold most of what there is ($before answers)");
	cmp_ok($before, '<=', AHEAD_SLOTS, 'and no more');
	sleep LAPSE_SECONDS;
	is($node->safe_psql('postgres', $held), $before, 'and keep it as long as nobody wants it');
	cmp_ok(asked_ahead(), '>=', 490, 'a statement that comes has its texts in batches');
	cmp_ok($node->safe_psql('postgres', $held), '<', $before - 20, 'which others had to give way for');
	cmp_ok($node->safe_psql('postgres', $held), '>', 60, 'but not all of them');
	is_going_on('after that', @idle);
	is_counted('after that');
};

scenario 'cursors that lost their answers go on in batches' => sub {
	$node->safe_psql('postgres', "CREATE TABLE batches AS SELECT id, CASE WHEN id BETWEEN 45 AND 60 THEN 'mock:batch 16 ' ELSE 'text ' END || id AS title FROM t");
	my $go = file();
	my $session = background($node, "BEGIN;\n" . declare('c', '', 'batches') . until_there($go) . "FETCH ALL FROM c;\nCOMMIT;");

	are_idle($session);
	my @idle = idle_sessions(10, 'b');
	sleep LAPSE_SECONDS;
	cmp_ok(asked_ahead(), '>=', 490, 'others come');
	is($node->safe_psql('postgres', "SELECT count(*) FROM hymt_stat_activity WHERE pid = " . session_pid($node, $session)), 0, 'and have taken all of it');
	append_to_file($go, '');
	finish($session);
	is($session->{err}, '', 'it goes on');
	is(scalar(grep { /^\d+$/ && $_ >= 16 } split /\n/, $session->{out}), 16, 'asking ahead again');
	is(scalar(split /\n/, $session->{out}), 60, 'to the end');
	is_going_on('the others', @idle);
};

scenario 'a session at work keeps what it has' => sub {
	my $go = file();
	my $release = file();

	$node->safe_psql('postgres', "CREATE TABLE waiting AS SELECT id, CASE WHEN id = 41 THEN 'mock:hold $release' ELSE title END AS title FROM t");
	my $session = background($node, "BEGIN;\n" . declare('c', '', 'waiting') . "FETCH ALL FROM c;\nCOMMIT;");
	my $pid = session_pid($node, $session);
	my $of_it = "SELECT count(*) FROM hymt_stat_activity WHERE pid = $pid AND state = 'done'";

	ok(wait_until($node, "SELECT count(*) > 20 FROM hymt_stat_activity WHERE pid = $pid AND state = 'done'", 't'), 'it waits for one answer and has others');
	my $before = $node->safe_psql('postgres', $of_it);
	my @idle = idle_sessions(10, 'c');
	sleep LAPSE_SECONDS;
	cmp_ok(asked_ahead(), '>=', 490, 'who comes takes from those that are idle');
	is($node->safe_psql('postgres', $of_it), $before, 'not from the one that waits');
	append_to_file($release, '');
	finish($session);
	is($session->{err}, '', 'it goes on');
	is($session->{out} . "\n", rows('') =~ s/^zh>en: text 41\n/released\n/r, 'and is right');
	is_going_on('the others', @idle);
};

scenario 'equal texts of several sessions' => sub {
	my $release = file();
	my @sessions;

	$node->safe_psql('postgres', "CREATE TABLE held AS SELECT id, CASE WHEN id > 40 THEN 'mock:hold $release' || chr(10) || id ELSE title END AS title FROM t");
	foreach my $number (1 .. 6)
	{
		my $go = file();

		push @sessions, background($node, "BEGIN;\n" . declare('c', '', 'held') . until_there($go) . "FETCH ALL FROM c;\nCOMMIT;");
		$sessions[-1]{go} = $go;
		$sessions[-1]{expected} = "released\n" x 60;
	}
	ok(wait_until($node, "SELECT count(*) > 100 FROM hymt_stat_activity WHERE state = 'following'", 't'), 'most of them follow others');
	ok(wait_until($node, "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'", 6), 'and their sessions are idle');
	append_to_file($release, '');
	my @idle = idle_sessions(8, 'd');
	sleep LAPSE_SECONDS;
	cmp_ok(asked_ahead(), '>=', 490, 'they give way');
	# One leaves for good while others still have what was answered for all.
	$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . session_pid($node, $sessions[2]) . ')');
	append_to_file($sessions[2]{go}, '');
	finish($sessions[2]);
	like($sessions[2]{err}, qr/57P01|connection/, 'one ends');
	is_going_on('equal texts', @sessions[0, 1, 3, 4, 5]);
	is_going_on('the others', @idle);
	is_counted('equal texts');
};

scenario 'engine, savepoints, cancel and the end of a session' => sub {
	my $identity = server_identity($node);
	my $go = file();
	my $begin = "BEGIN;\n" . declare('a', ' e 1') . "SAVEPOINT s;\n" . declare('b', ' e 2') . until_there($go);
	my %end = (
		'ROLLBACK TO' => [ "ROLLBACK TO s;\nFETCH ALL FROM a;\nCOMMIT;", rows(' e 1') ],
		'an error in a subtransaction' => [ "FETCH 1 FROM b;\nSAVEPOINT t;\n\\set ON_ERROR_STOP 0\nSELECT 1 / 0;\nROLLBACK TO t;\nFETCH ALL FROM b;\nFETCH ALL FROM a;\nCOMMIT;", rows(' e 2') . rows(' e 1') ],
		'CLOSE' => [ "CLOSE a;\nFETCH 10 FROM b;\nCOMMIT;", rows(' e 2', 50) ],
		'COMMIT' => [ "COMMIT;", '' ],
		'RESET' => [ "CLOSE ALL;\nROLLBACK;\n" . translate('text x') . ";", "zh>en: text x\n" ],
		'a call of its own' => [ translate('text 45 e 1') . ";\nFETCH ALL FROM a;\nROLLBACK;", "zh>en: text 45 e 1\n" . rows(' e 1') ]);
	my @sessions = map { my $session = background($node, $begin . $end{$_}[0]); $session->{name_of} = $_; $session->{go} = $go; $session } sort keys %end;
	my $killed = background($node, $begin . 'COMMIT;');
	my $cancelled = background($node, $begin . "\\set ON_ERROR_STOP 0\n" .
		"SELECT hymt_translate('mock:sleep 30', 'zh', 'en');\nROLLBACK;\n" . translate('and on') . ';');
	my @idle = idle_sessions(8, 'f');

	are_idle(@sessions, $killed, $cancelled);
	sleep LAPSE_SECONDS;
	cmp_ok(asked_ahead(), '>=', 490, 'others come');
	my $engine = status($node, 'engine_pid');
	$node->psql('postgres', translate('mock:crash'));
	ok(wait_for_status($node, "state = 'ready' AND engine_pid <> $engine"), 'the engine is another one');
	$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . session_pid($node, $killed) . ')');
	append_to_file($go, '');
	finish($killed);
	like($killed->{err}, qr/57P01|connection/, 'a session is terminated');
	foreach my $session (@sessions)
	{
		finish($session);
		$session->{err} =~ s/^ERROR: *22012$//m if $session->{name_of} =~ /subtransaction/;
		is($session->{err}, '', "$session->{name_of}: no error");
		is($session->{out} eq '' ? '' : "$session->{out}\n", $end{ $session->{name_of} }[1], "$session->{name_of}: the right answers");
	}
	my $pid = session_pid($node, $cancelled);
	wait_until($node, "SELECT count(*) FROM hymt_stat_activity WHERE pid = $pid AND state = 'claimed'", 1);
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	finish($cancelled);
	like($cancelled->{err}, qr/57014/, 'a call is cancelled');
	is($cancelled->{out}, 'zh>en: and on', 'and the session goes on');
	is_going_on('the others', @idle);
	is_undisturbed($node, $identity, 'all of that');
	is_counted('all of that');
};

scenario "a session's own idle windows give way" => sub {
	my $sql = "BEGIN;\n" . join '', map { declare("c$_", " g $_") } 1 .. 12;

	$sql .= "\\! sleep ${\ LAPSE_SECONDS}\nUPDATE many SET en = hymt_translate(title || ' g', 'zh', 'en');\n";
	$sql .= "SELECT count(*) FROM many WHERE en ~ '^[0-9]+\$' OR en = 'zh>en: title ' || id || ' g';\n";
	$sql .= "FETCH ALL FROM c$_;\n" foreach 1 .. 12;
	my $session = finish(background($node, "${sql}COMMIT;"));
	is($session->{err}, '', 'a statement beside twelve open cursors');
	is($session->{out} . "\n", "500\n" . join('', map { rows(" g $_") } 1 .. 12), 'is right, and so are they');
};

scenario 'what a role may have' => sub {
	$node->safe_psql('postgres', 'CREATE ROLE few; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO few; GRANT ALL ON t, many TO few; ' .
		'ALTER SYSTEM SET hymt.max_requests_per_role = 160; SELECT pg_reload_conf()');
	wait_until($node, 'SHOW hymt.max_requests_per_role', 160);
	my $go = file();
	my @idle = map {
		my $session = background($node, "SET ROLE few;\nBEGIN;\n" . declare('c', " h $_") . until_there($go) . "FETCH ALL FROM c;\nCOMMIT;");
		$session->{go} = $go;
		$session->{expected} = rows(" h $_");
		$session
	} 1 .. 6;

	are_idle(@idle);
	cmp_ok($node->safe_psql('postgres', $held), '>', 50, 'it has most of what it may have lying');
	my @others = idle_sessions(2, 'i');
	sleep LAPSE_SECONDS;
	is($node->safe_psql('postgres', "SET ROLE few; UPDATE many SET en = hymt_translate(title || ' h', 'zh', 'en'); " .
			"SELECT count(*) FROM many WHERE en ~ '^[0-9]+\$' OR en = 'zh>en: title ' || id || ' h'"), 500, 'a statement of the same role');
	is_going_on('its cursors', @idle);
	is_going_on('the others', @others);
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET hymt.max_requests_per_role; SELECT pg_reload_conf()');
	wait_until($node, 'SHOW hymt.max_requests_per_role', 0);
};

scenario 'queue memory' => sub {
	my $text = 'long ' x 700 . 'text';
	$node->safe_psql('postgres', "CREATE TABLE long AS SELECT id, repeat('long ', 700) || title AS title FROM t");
	$node->append_conf('postgresql.conf', "hymt.queue_memory = '1MB'");
	$node->restart;
	wait_for_status($node, "state = 'ready'");
	my $go = file();
	my @idle = map {
		my $session = background($node, "BEGIN;\n" . declare('c', " j $_", 'long') . until_there($go) . "FETCH ALL FROM c;\nCOMMIT;");
		$session->{go} = $go;
		$session->{expected} = rows(" j $_") =~ s/text/$text/gr;
		$session
	} 1 .. 4;

	are_idle(@idle);
	sleep LAPSE_SECONDS;
	cmp_ok(asked_ahead(), '>=', 490, 'their answers give way');
	is_going_on('long texts', @idle);
	is_counted('long texts');
};

done_testing();
