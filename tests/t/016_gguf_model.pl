# hymt.model names a GGUF file: the demo model in that form gives the answers that it gives itself. A file that is
# broken is refused, and hymt_status says which.
use strict;
use warnings;

use FindBin;
use HymtTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = "$FindBin::RealBin/../..";
my $folder = PostgreSQL::Test::Utils::tempdir();
my $file = "$folder/demo.gguf";

chmod 0755, $folder;
is(system('python3', "$root/tests/engine/model_files.py", $file, "$root/models/demo"), 0,
	'a GGUF file of the demo model');
chmod 0644, $file;

my $node = hymt_node('gguf_model', model => 'demo/', conf => "hymt.engine = ''\nhymt.model = 'demo'");
my @texts = ('Red bicycle', 'Wooden table with four chairs', 'Winter jacket, waterproof');
my $query = 'SELECT ' . join(', ', map { "hymt_translate('$_', 'en', 'zh')" } @texts);
my $expected = $node->safe_psql('postgres', $query);

$node->append_conf('postgresql.conf', "hymt.model = '$file'");
$node->reload;
ok($node->poll_query_until('postgres',
		q{SELECT bool_and(state = 'ready' AND model = 'HY-MT1.5 demo') FROM hymt_status}),
	'the file is loaded');
is($node->safe_psql('postgres', 'SELECT family, precision FROM hymt_status'), 'hy-mt1.5|exact',
	'its name tells the prompts');
is($node->safe_psql('postgres', $query), $expected, 'the same answers');

# cut in the middle of the weights
append_to_file("$file.cut", substr(slurp_file($file, 0), 0, 1_000_000));
chmod 0644, "$file.cut";
$node->append_conf('postgresql.conf', "hymt.model = '$file.cut'");
$node->reload;
ok($node->poll_query_until('postgres',
		q{SELECT bool_and(last_error LIKE '%demo.gguf.cut%truncated%') FROM hymt_status}),
	'a truncated file is refused by name');
is($node->safe_psql('postgres', $query), $expected, 'the one before goes on');

wait_for_all_free($node, 'afterwards');
$node->stop;

done_testing();
