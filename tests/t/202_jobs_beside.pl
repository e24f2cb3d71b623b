# Jobs beside others: of several databases with one worker for all, of another server that replicates them, in dumps.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use HymtTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = hymt_node(
	'jobs_beside',
	init => [ allows_streaming => 'logical' ],
	conf => "hymt.max_database_workers = 1\nhymt.queue_slots = 16\n");

sub submit
{
	my ($on, $database, $text) = @_;

	return $on->safe_psql($database, "SELECT hymt_submit('$text', 'zh', 'en')");
}

sub is_done
{
	my ($on, $database, $job, $attempts, $name) = @_;

	$on->safe_psql($database, "SELECT hymt_wait($job, '60 s')");
	return is($on->safe_psql($database, "SELECT state, attempts FROM hymt_job WHERE id = $job"), "done|$attempts", $name);
}

scenario 'databases take turns' => sub {
	foreach my $name ('one', 'two')
	{
		$node->safe_psql('postgres', "CREATE DATABASE $name");
		$node->safe_psql($name, 'CREATE EXTENSION hymt');
	}
	my $long = submit($node, 'one', 'mock:sleep 6');
	wait_for_slots($node, 1);
	my $short = submit($node, 'two', 'short');
	is_done($node, 'two', $short, 1, 'one with a worker ends what it has, and makes way');
	is_done($node, 'one', $long, 1, 'nothing was begun in vain');

	my @jobs = map {
		[ $_, $node->safe_psql($_, "SELECT max(hymt_submit('mock:sleep 0.02' || chr(10) || i, 'zh', 'en')) FROM generate_series(1, 1500) AS i") ]
	} ('one', 'two');
	is_done($node, @$_, 1, "the last of many in $_->[0]") for @jobs;
	is( $node->safe_psql($_, "SELECT count(*) FROM hymt_job WHERE state <> 'done' OR attempts <> 1"),
		'0',
		"none in $_ was made twice") for ('one', 'two');
};

scenario 'sessions with single calls are served first' => sub {
	$node->safe_psql('one', "SELECT count(hymt_submit('mock:sleep 0.3' || chr(10) || i, 'zh', 'en')) FROM generate_series(1, 300) AS i");
	ok(wait_until($node, "SELECT slots_in_use >= 12 FROM hymt_status", 't'), 'jobs take their share of the queue');
	my $session = background($node, translate('hurry'));
	is(finish($session)->{out}, 'zh>en: hurry', 'a call finds room');
	cmp_ok($session->{took}, '<', PROMPT_SECONDS, 'soon');
	$node->safe_psql('one', "SELECT count(hymt_cancel(id)) FROM hymt_job WHERE state IN ('queued', 'running')");
	is($node->safe_psql('one', "SELECT count(*) FROM hymt_job WHERE state IN ('queued', 'running')"), '0', 'all can be cancelled at once');
};

scenario 'a publication for all tables' => sub {
	my $other = hymt_node('jobs_subscriber');

	$_->safe_psql('postgres', 'CREATE TABLE data (id int PRIMARY KEY)') for ($node, $other);
	my $early = submit($node, 'postgres', 'before the subscription');
	is_done($node, 'postgres', $early, 1, 'a job of the publisher');
	$node->safe_psql('postgres', 'CREATE PUBLICATION everything FOR ALL TABLES');
	my $connstr = $node->connstr . ' dbname=postgres';
	$other->safe_psql('postgres', "CREATE SUBSCRIPTION all_of_it CONNECTION '$connstr' PUBLICATION everything");
	$other->wait_for_subscription_sync($node, 'all_of_it');
	# The same numbers on both sides.
	my @local = map { submit($other, 'postgres', "local $_") } 1 .. 3;
	my @jobs = map { submit($node, 'postgres', "published $_") } 1 .. 3;
	is_done($node, 'postgres', $jobs[2], 1, 'jobs can be updated');
	is_done($other, 'postgres', $local[2], 1, 'a job of the subscriber');
	$node->safe_psql('postgres', 'INSERT INTO data VALUES (1); DELETE FROM hymt_job WHERE id = ' . $jobs[0]);
	$node->safe_psql('postgres', 'INSERT INTO data VALUES (2)');
	ok(wait_until($other, 'SELECT count(*) FROM data', '2'), 'replication goes on');
	is( $other->safe_psql('postgres', "SELECT string_agg(translation, ',' ORDER BY id) FROM hymt_job"),
		'zh>en: local 1,zh>en: local 2,zh>en: local 3',
		'each server has its own jobs');
	$other->safe_psql('postgres', 'DROP SUBSCRIPTION all_of_it');
	$node->safe_psql('postgres', 'DROP PUBLICATION everything');
	$other->stop;
};

scenario 'dumps' => sub {
	my $dump = $node->basedir . '/dump.sql';

	$node->command_ok([ 'pg_dump', '-f', $dump, '-d', $node->connstr('postgres') ], 'a dump');
	unlike(slurp_file($dump), qr/published 1|hymt_job/, 'has no jobs');
	$node->safe_psql('postgres', 'CREATE DATABASE restored');
	$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $node->connstr('restored') ], 'can be restored');
	is_done($node, 'restored', submit($node, 'restored', 'there'), 1, 'jobs begin anew');
};

$node->stop;
done_testing();
