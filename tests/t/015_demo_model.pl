# The real engine with the model that ships: what one session gets, any number of sessions get, and it is what the
# reference implementation gives (models/demo/reference.jsonl).
use strict;
use warnings;

use FindBin;
use HymtTest;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use constant SESSIONS => 32;
use constant TEXTS => 64;

# Texts of the reference whose prompt is the plain one: they come through SQL as they are.
sub reference_cases
{
	my @cases;

	foreach my $line (split /\n/, slurp_file("$FindBin::RealBin/../../models/demo/reference.jsonl"))
	{
		my $case = JSON::PP->new->utf8->decode($line);
		next unless ($case->{from} // '') =~ /^(?:en|zh|de|fr|es|ja)$/;
		next unless $case->{prompt} =~ /\n\n\Q$case->{source}\E\z/ && $case->{prompt} !~ /\n\n.*\n\n/s;
		next if $case->{max_new} < 64 || $case->{output} =~ /[\n\t\\]/ || $case->{source} =~ /[\n\t\\]/;
		push @cases, $case;
		last if @cases == TEXTS;
	}
	return @cases;
}

my @cases = reference_cases();
is(scalar @cases, TEXTS, 'the reference has enough plain prompts');

my $node = hymt_node('demo_model', model => 'demo/', conf => "hymt.engine = ''\nhymt.model = 'demo'");
my $rows = join '', map { JSON::PP->new->ascii->canonical->encode($_) . "\n" }
	map { { src => $_->{from}, tgt => $_->{to}, source => $_->{source}, output => $_->{output} } } @cases;
my $file = $node->basedir . '/cases.jsonl';
append_to_file($file, $rows);
chmod 0644, $file;
$node->safe_psql('postgres', <<"END");
CREATE TABLE cases AS
SELECT row_number() OVER () AS id, c->>'src' AS src, c->>'tgt' AS tgt, c->>'source' AS source, c->>'output' AS output
FROM (SELECT regexp_split_to_table(trim(trailing E'\\n' from pg_read_file('$file')), E'\\n')::jsonb AS c) AS lines
END

my $wrong = 'SELECT count(*), count(*) FILTER (WHERE hymt_translate(source, src, tgt) IS DISTINCT FROM output) FROM cases';
my $identity = server_identity($node);
is($node->safe_psql('postgres', $wrong), TEXTS . '|0', 'one session: the answers of the reference');
my $alone = status($node, 'rows_per_step');

# Each session begins elsewhere, so that different texts meet in a step.
my @sessions = map {
	background($node, "SELECT count(*), count(*) FILTER (WHERE hymt_translate(source, src, tgt) IS DISTINCT FROM output) "
		  . "FROM (SELECT * FROM cases ORDER BY (id + $_ * 7) % " . TEXTS . " OFFSET 0) AS c")
} 1 .. SESSIONS;
finish($_) foreach @sessions;
is_deeply([ map { "$_->{out}$_->{err}" } @sessions ], [ (TEXTS . '|0') x SESSIONS ],
	SESSIONS . ' sessions at a time: the same answers');
cmp_ok(status($node, 'rows_per_step'), '>', $alone, 'they shared steps');

# The model has a token for the byte 0, which no text of PostgreSQL may have: drawn so, it says everything now and then.
$node->safe_psql('postgres', <<'END');
SELECT hymt_translate_stream('hello', 'zh', 'en', on_error => 'null',
	options => jsonb_build_object('max_tokens', 300, 'sampling', jsonb_build_object('temperature', 100, 'seed', seed)))
FROM unnest(ARRAY[34, 37, 49, 102, 105]) AS seed
END
is(status($node, 'restarts'), 0, 'no answer breaks the protocol');

wait_for_all_free($node, 'afterwards');
is_undisturbed($node, $identity, 'afterwards');
$node->stop;

done_testing();
