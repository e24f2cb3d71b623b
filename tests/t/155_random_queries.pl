# Random statements give the same with reading ahead as without: rows, errors, what they leave in tables, and how often
# functions with effects were called. HYMT_RANDOM_CASES says how many, HYMT_RANDOM_SEED where to begin.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Utils;
use RandomQueries;
use Test::More;

my $cases = $ENV{HYMT_RANDOM_CASES} // 150;
my $seed = $ENV{HYMT_RANDOM_SEED} // 1;
my $node = hymt_node('random', model => 'mock-step-0', conf => "max_worker_processes = 16\nmax_parallel_workers = 4\nhymt.queue_slots = 200\nhymt.adapters = '\@formal=formal'\n");

$node->safe_psql('postgres', random_schema());

# Runs the cases in one session; gives for each its output, with errors as SQLSTATE.
sub run_cases
{
	my ($on, @seeds) = @_;
	my $file = $node->basedir . "/cases-$on.sql";
	# What former cases left of their rows would make other plans.
	my $script = "VACUUM (FULL, ANALYZE) t, u, p, i, i1, i2, bad, target;\nSET hymt.read_ahead = $on;\n";

	$script .= join '', map { "\\echo case $_\nBEGIN;\n" . random_case($_) . "ROLLBACK;\n" } @seeds;
	append_to_file($file, $script);
	my $output = '';
	IPC::Run::run([ 'psql', '-XAtq', '-v', 'VERBOSITY=sqlstate', '-f', $file, '-d', $node->connstr('postgres') ],
		'<', File::Spec->devnull, '>&', \$output);
	unlink $file;
	$output =~ s/^psql:[^ ]*: //mg;
	my (undef, @parts) = split /^case (\d+)\n/m, $output;
	return {@parts};
}

# Without an order rows may come in any, above all from parallel workers.
sub normalised
{
	my ($output) = @_;

	return join "\n", sort split /\n/, $output // '(nothing)';
}

scenario 'random statements give the same with reading ahead and without' => sub {
	my $differing = 0;
	my $translations = 0;

	for (my $first = $seed; $first < $seed + $cases; $first += 50)
	{
		my @seeds = grep { $_ < $seed + $cases } $first .. $first + 49;
		my $with = run_cases('on', @seeds);
		my $without = run_cases('off', @seeds);

		foreach my $case (@seeds)
		{
			$translations += () = ($with->{$case} // '') =~ /zh>/g;
			next if normalised($with->{$case}) eq normalised($without->{$case});
			$differing++;
			diag("case $case:\n" . random_case($case) . "with:\n" . substr($with->{$case} // '', 0, 3000) .
				"\nwithout:\n" . substr($without->{$case} // '', 0, 3000)) if $differing <= 5;
		}
		ok(wait_for_status($node, 'slots_in_use = 0'), "all slots are free after case $seeds[-1]");
	}
	cmp_ok($translations, '>', $cases, "there are translations in the results ($translations)");
	is($differing, 0, "$cases cases, no difference");
};

done_testing();
