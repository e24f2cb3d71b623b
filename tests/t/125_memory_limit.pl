# hymt.memory with the real engine: a limit that the model fits into is used, one that it does not is refused with the
# sizes, and nobody who is served is disturbed by that.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = hymt_node('memory_limit', model => 'demo/', conf => "hymt.engine = ''\nhymt.model = 'demo'\n");
my $identity = server_identity($node);

sub set_memory
{
	my ($size) = @_;
	my $start = -s $node->logfile;

	$node->safe_psql('postgres', "ALTER SYSTEM SET hymt.memory = '$size'");
	$node->reload;
	return $start;
}

sub log_has
{
	my ($pattern, $start) = @_;

	for (1 .. 300)
	{
		return 1 if slurp_file($node->logfile, $start) =~ $pattern;
		select undef, undef, undef, 0.1;
	}
	return 0;
}

ok(wait_for_status($node, "state = 'ready'"), 'the engine is ready');
like(slurp_file($node->logfile), qr/memory: \d+ of \d+ MB: weights \d+/, 'it says how memory is divided');
my $first = status($node, 'engine_pid');

my $start = set_memory('100MB');
ok(wait_for_status($node, "state = 'ready' AND engine_pid <> $first"), 'a limit makes another engine');
ok(log_has(qr/memory: \d+ of 100 MB/, $start), 'that keeps it');
my $second = status($node, 'engine_pid');
my $answer = $node->safe_psql('postgres', "SELECT hymt_translate('Basketball Rims', 'en', 'zh')");
isnt($answer, '', 'it translates');

$start = set_memory('20MB');
ok(wait_for_status($node, "last_error LIKE '%does not fit into memory%20 MB%'"), 'a limit that is too low is refused with the sizes');
is(status($node, 'engine_pid, state'), "$second|ready", 'by the new engine alone');
is($node->safe_psql('postgres', "SELECT hymt_translate('Basketball Rims', 'en', 'zh')"), $answer, 'the old one goes on');

$start = set_memory('38MB');
ok(wait_for_status($node, "state = 'ready' AND engine_pid <> $second"), 'with little memory');
ok(log_has(qr/for want of memory \d+ rows per step/, $start), 'it says what it does without');
is($node->safe_psql('postgres', "SELECT hymt_translate('Basketball Rims', 'en', 'zh')"), $answer, 'and translates the same');
ok(wait_until($node, 'SELECT reused_tokens > 0 AND degraded_steps = 0 FROM hymt_stat', 't'),
	'the instruction was computed once for all');

is_undisturbed($node, $identity, 'in the end');
$node->stop;
done_testing();
