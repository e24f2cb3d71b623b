# Requests reach the engine and answers the right session, alone and many at a time.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $node = hymt_node('answers');
my $identity = server_identity($node);

sub answers
{
	my ($text, $expected, $name) = @_;
	my $session = finish(background($node, translate($text)));

	return is("$session->{out}$session->{err}", $expected, $name);
}

answers('红色连衣裙', 'zh>en: 红色连衣裙', 'a text comes back translated');
answers('mock:shortwrite', 'slowly', 'an answer that comes byte by byte');
answers('mock:twice', 'once', 'of two answers the first counts');
answers('after twice', 'zh>en: after twice', 'the second one reaches nobody');
answers('mock:finish stop', 'unfinished', 'an answer that ended with a stop token');
answers('mock:finish length', 'ERROR:  MT004', 'an answer that was cut is none');
answers('mock:finish loop', 'ERROR:  MT004', 'nor is one that ended in a loop');
is($node->safe_psql('postgres', "SELECT length(hymt_translate('mock:big 3000000', 'zh', 'en'))"),
	'3000000', 'an answer of 3 MB');
is( $node->safe_psql('postgres', <<'END'), 't', 'a text of 1.6 MB');
SELECT md5(hymt_translate(t, 'zh', 'en')) = md5('zh>en: ' || t) FROM repeat('很长的文字 ', 100000) AS t
END

# A context travels beside the text.
is($node->safe_psql('postgres', "SELECT hymt_translate('外套', 'zh', 'en', 'winter')"), 'zh>en (winter): 外套',
	'a text with a context');
is( $node->safe_psql('postgres', "SELECT hymt_translate(ARRAY['外套', NULL, '大衣'], 'zh', 'en', context => 'winter')"),
	'{"zh>en (winter): 外套",NULL,"zh>en (winter): 大衣"}', 'an array with a context');
is( $node->safe_psql('postgres', <<'END'), 't', 'a context of 1 MB');
SELECT md5(hymt_translate('外套', 'zh', 'en', c)) = md5('zh>en (' || c || '): 外套') FROM repeat('冬', 350000) AS c
END
is( $node->psql('postgres', "SELECT hymt_translate('外套', 'zh', 'en', repeat('winter ', 2000000), on_error => 'null')"),
	3, 'a context that queue memory cannot hold');

# Failures of a text have the SQLSTATE of their kind.
my %sqlstate = (
	'language' => 'MT007', 'too-long' => '54000', 'bad-text' => '22021', 'unfinished' => 'MT004',
	'no-memory' => '53200', 'unsupported' => '0A000', 'numeric' => 'MT003', 'internal' => 'MT003', 'adapter' => 'MT008');
foreach my $failure (sort keys %sqlstate)
{
	answers("mock:fail $failure", "ERROR:  $sqlstate{$failure}", "failure: $failure");
}

# Where files may be named, only those are told who may see the settings that name them.
$node->safe_psql('postgres', 'CREATE ROLE guest; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO guest');
foreach my $failure ('no-memory', 'adapter')
{
	my (undef, undef, $told) = $node->psql('postgres', translate("mock:fail $failure"));
	my (undef, undef, $guest) = $node->psql('postgres', 'SET ROLE guest; ' . translate("mock:fail $failure"));

	like($told, qr/DETAIL:  The mock engine was asked to fail/, "failure: $failure: the reason");
	unlike($guest, qr/mock engine/, "failure: $failure: not for everybody");
}

# One step with requests of eight sessions at least: each waits until eight are in its step.
my @sessions = map { background($node, translate("mock:batch 8 $_")) } 1 .. 8;
finish($_) foreach @sessions;
is_deeply([ map { $_->{out} } @sessions ], [ ('8') x 8 ], 'one step contains requests of eight sessions');
cmp_ok(status($node, 'rows_per_step'), '>', 1, 'the mean number of requests per step says so too');

# An answer that comes after its request was cancelled, while others use the same slot.
foreach my $round (1 .. 3)
{
	my $late = finish(background($node, "SET statement_timeout = 200; " . translate('mock:late 0.5')));

	is($late->{err}, 'ERROR:  57014', "late answer $round: the statement timed out");
	my @others = map { background($node, translate("mock:sleep 1 $_")) } 1 .. 4;
	finish($_) foreach @others;
	is_deeply([ map { $_->{out} } @others ], [ ('awake') x 4 ], "late answer $round: it reached nobody");
}

# Many sessions, more requests than credits: every row gets its own answer.
my $check = <<'END';
SELECT count(*) FROM generate_series(1, 150) AS i
 WHERE hymt_translate(format('文字 %s of %s', i, pg_backend_pid()), 'zh', 'en')
       IS DISTINCT FROM format('zh>en: 文字 %s of %s', i, pg_backend_pid())
END
my @many = map { background($node, $check) } 1 .. 16;
finish($_) foreach @many;
is_deeply([ map { "$_->{out}$_->{err}" } @many ], [ ('0') x 16 ], 'sixteen sessions get their own answers');

use_model($node, 'mock-credits-2');
wait_for_status($node, "state = 'ready' AND model = 'mock-credits-2'");
@many = map { background($node, $check) } 1 .. 4;
finish($_) foreach @many;
is_deeply([ map { "$_->{out}$_->{err}" } @many ], [ ('0') x 4 ], 'with two credits too');
my @three = map { background($node, translate("mock:batch 2 $_")) } 1 .. 4;
finish($_) foreach @three;
is_deeply([ map { $_->{out} } @three ], [ ('2') x 4 ], 'never more requests in the engine than it has credits for');

# What the engine writes to stderr is in the server log, line by line and harmless.
my $log_start = -s $node->logfile;
answers('mock:log 5', 'logged', 'an engine that writes to stderr');
answers('after log', 'zh>en: after log', 'and lives on');
my $log = '';
for (1 .. 250)
{
	$log = slurp_file($node->logfile, $log_start);
	last if $log =~ /mock line 5 of 5/;
	usleep(20_000);
}
like($log, qr/LOG:  hymt: engine \(PID \d+\): mock line 1 of 5\n/, 'its lines are in the log');
unlike($log, qr/[^\n\t\x20-\x7e\x80-\xff]/, 'without control characters');

# A flood of them is cut.
answers('mock:log 20000', 'logged', 'an engine that floods stderr');
cmp_ok(-s $node->logfile, '<', $log_start + 500_000, 'does not flood the log');

wait_for_all_free($node, 'in the end');
is_undisturbed($node, $identity, 'in the end');
$node->stop;
done_testing();
