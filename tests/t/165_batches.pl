# Arrays and documents as batches: larger than the queue, together with others, and when things go wrong in the middle.
# And what details cost in each form of asking for them.
use strict;
use warnings;

use HymtTest;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

# Twelve of the slots may be bulk requests.
my $node = hymt_node('batches', model => 'mock-step-0-64', conf => <<'END');
hymt.queue_slots = 16
hymt.adapters = '@legal=/nowhere'
log_statement = none
END
my $number_of_files = 0;

$node->safe_psql('postgres', <<'END');
CREATE FUNCTION document(name text, strings int, special text DEFAULT NULL) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('shop', name, 'goods', jsonb_agg(jsonb_build_object('id', i, 'sku', 'A-' || i,
		'names', jsonb_build_array(name || ' item ' || i, CASE WHEN i = strings / 2 THEN special END))))
	FROM generate_series(1, strings) AS i
$$;
CREATE FUNCTION texts(name text, elements int, special text DEFAULT NULL) RETURNS text[] LANGUAGE sql AS $$
	SELECT array_agg(CASE WHEN i = elements / 2 AND special IS NOT NULL THEN special ELSE name || ' item ' || i END ORDER BY i)
	FROM generate_series(1, elements) AS i
$$;
END

sub file
{
	my ($name) = @_;

	return $node->basedir . "/${name}_" . ++$number_of_files;
}

sub requests
{
	return $node->safe_psql('postgres', 'SELECT requests FROM hymt_stat');
}

# SQL of a call, and how often that made hymt ask.
sub requests_of
{
	my ($sql) = @_;
	my $before = requests();

	$node->safe_psql('postgres', "CREATE TEMP TABLE got AS $sql");
	return requests() - $before;
}

sub ask
{
	my ($sql) = @_;

	return $node->safe_psql('postgres', "SELECT $sql");
}

# Both kinds of batches with these strings in them, in order.
sub both
{
	my ($rest, @strings) = @_;
	my $array = 'ARRAY[' . join(', ', map { "'" . s/'/''/gr . "'" } @strings) . ']';

	return (
		array => "array_to_string(hymt_translate($array, 'zh', 'en'$rest), E'\\n', '(null)')",
		document => "(SELECT string_agg(coalesce(t, '(null)'), E'\\n' ORDER BY n) " .
		  "FROM jsonb_array_elements_text(hymt_translate_json(to_jsonb($array), 'zh', 'en', '{*}'$rest)) WITH ORDINALITY AS e (t, n))");
}

# --- sizes ---------------------------------------------------------------------------------------------------------

scenario 'larger than the queue' => sub {
	is(ask(<<'END'), '100000|t', 'an array of 100,000 texts');
count(*), bool_and(t = 'zh>en: large item ' || n)
FROM unnest(hymt_translate(texts('large', 100000), 'zh', 'en')) WITH ORDINALITY AS r (t, n)
END
	is(ask(<<'END'), '5000|t|t', 'a document with 5,000 strings');
(SELECT count(*) FROM jsonb_array_elements(t -> 'goods')),
	(SELECT bool_and(value #>> '{names,0}' = 'zh>en: large item ' || n) FROM jsonb_array_elements(t -> 'goods') WITH ORDINALITY AS g (value, n)),
	replace(t::text, 'zh>en: ', '')::jsonb = document('large', 5000)
FROM hymt_translate_json(document('large', 5000), 'zh', 'en', '{goods.*.names.*}') AS t
END
	is(requests_of("SELECT hymt_translate_json(document('large', 5000), 'zh', 'en', '{goods.*.names}')"), 5000, 'each is asked for');
	is(requests_of("SELECT hymt_translate_json(jsonb_build_array(document('twice', 100), document('twice', 100)), 'zh', 'en', " .
			"'{*.goods, *.goods.*.names.0}')"), 100, 'equal strings, and those to which several paths lead, once');
	is(requests_of("SELECT hymt_translate_json(document('other', 100), 'zh', 'en', '{nothing,goods.*.id,goods.*.sku}')"), 0, 'none where there is none');
	is(requests_of("SELECT hymt_translate(texts('same', 10) || texts('same', 20), 'zh', 'en')"), 20, 'equal elements once');
};

scenario 'together' => sub {
	foreach my $kind (qw(array document))
	{
		my %ask = both('', map { "mock:batch 12 $_" } 1 .. 12);

		is(ask($ask{$kind}), join("\n", (12) x 12), "$kind: as many at a time as there is room for");
	}
};

scenario 'two large batches at once' => sub {
	my @sessions = map { background($node, $_) } (
		"SELECT count(*) FROM jsonb_path_query(hymt_translate_json(document('one', 2000), 'zh', 'en', '{goods}'), '\$.goods.names[0] ? (\@ starts with \"zh>en: one\")')",
		"SELECT count(*) FROM jsonb_path_query(hymt_translate_json(document('two', 2000), 'zh', 'en', '{goods}'), '\$.goods.names[0] ? (\@ starts with \"zh>en: two\")')",
		"SELECT count(*) FROM unnest(hymt_translate(texts('one', 2000), 'zh', 'en')) AS t WHERE t LIKE 'zh>en: one%'");

	is(finish($_)->{out} . $_->{err}, 2000, 'all of it is translated') foreach @sessions;
};

# --- what is asked with ------------------------------------------------------------------------------------------

scenario 'context, options and priority' => sub {
	my $options = '{"adapter": "legal", "max_tokens": 77, "sampling": {"temperature": 0.5, "top_k": 3, "top_p": 0.25, "seed": 9}}';
	my $expected = 'cap 77 adapter "legal" temperature 0.5 top_k 3 top_p 0.25 seed 9';
	my %ask = both(", options => '$options'", 'mock:order');

	is(ask($ask{$_}), $expected, "$_: adapter, max_tokens and sampling") foreach qw(array document);
	is(ask("hymt_translate('mock:order', 'zh', 'en', options => '$options')"), $expected, 'as for one text');
	is(ask("(hymt_translate_details('mock:order', 'zh', 'en', options => '$options')).translation"), $expected, 'and its details');
	%ask = both(", context => 'winter'", 'coat', '42', 'hat');
	is(ask($ask{$_}), "zh>en (winter): coat\n42\nzh>en (winter): hat", "$_: context") foreach qw(array document);
	is(ask("hymt_translate_json('{\"a\": \"coat\"}', 'zh', 'en', '{a}', 'winter')"), '{"a": "zh>en (winter): coat"}', 'context by position');

	foreach my $case ([ '', 1, 'single' ], [ '', 2, 'bulk' ], [ q(, options => '{"priority": "normal"}'), 2, 'bulk' ],
		[ q(, options => '{"priority": "bulk"}'), 1, 'bulk' ])
	{
		my ($rest, $count, $class) = @$case;
		my $file = file('held');
		my %held = both($rest, map { "mock:hold $file\n$_" } 1 .. $count);

		foreach my $kind (qw(array document))
		{
			my $session = background($node, "SELECT $held{$kind}");

			ok(wait_until($node, "SELECT string_agg(DISTINCT class, ' '), count(*) FROM hymt_stat_activity WHERE state = 'claimed'", "$class|$count"),
				"$kind of $count strings$rest: $class");
			append_to_file($file, '');
			is(finish($session)->{out}, join("\n", ('released') x $count), 'and its answer');
			unlink $file;
		}
	}
};

# --- results -----------------------------------------------------------------------------------------------------

scenario 'what a document holds' => sub {
	my $text = qq(quote " back \\ slash / tab \t line \n bell \x07 del \x7f <b>&amp;</b> \\u0041);

	is( $node->safe_psql('postgres', "SELECT hymt_translate_json(d, 'zh', 'en', '{a}') = jsonb_build_object('a', hymt_translate(d ->> 'a', 'zh', 'en'), 'b', 1) " .
				"FROM jsonb_build_object('a', \$q\$$text\$q\$, 'b', 1) AS d"), 't', 'a translation with characters that JSON escapes');
	is(ask("hymt_translate_json('[\"\\u81ea\\ud83d\\ude00\", \"\\u81ea\"]', 'zh', 'en', '{*}')"), '["zh>en: 自😀", "zh>en: 自"]', 'characters that are written as escapes');
	is(ask(q(length(hymt_translate_json('["a", "mock:big 3000000"]', 'zh', 'en', '{1}') ->> 1))), 3000000, 'a translation of 3 MB');
	is(ask(q(length(hymt_translate_json(jsonb_build_object('a', repeat('long ', 300000)), 'zh', 'en', '{a}') ->> 'a'))), 1500007, 'a text of 1.5 MB');
	my ($code, undef, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\n" .
			"SELECT hymt_translate_json((SELECT jsonb_agg('mock:big 3000000'::text) FROM generate_series(1, 90)), 'zh', 'en', '{*}')");
	like($err, qr/54000/, 'an array that gets too large for jsonb');
	is( $node->safe_psql('postgres', "SELECT hymt_translate_json('{\"a\": [\"x\", {}]}', 'zh', 'en', '{a}') || hymt_translate_json('{\"b\": \"y\"}', 'zh', 'en', '{b}')"),
		'{"a": ["zh>en: x", {}], "b": "zh>en: y"}', 'two calls in one statement');
	my $mode = $node->pg_version >= 16 ? 'debug_parallel_query' : 'force_parallel_mode';
	is( $node->safe_psql('postgres', "CREATE TABLE documents AS SELECT document('p' || i, 20) AS d FROM generate_series(1, 50) AS i; ANALYZE documents; SET $mode = on;" .
				"SELECT bool_and(replace(hymt_translate_json(d, 'zh', 'en', '{goods.*.names}')::text, 'zh>en: ', '')::jsonb = d) FROM documents"),
		't', 'in a parallel worker');
};

scenario 'failures' => sub {
	foreach my $case ([ 'mock:fail language', 'MT007' ], [ 'mock:finish loop', 'MT004' ], [ 'mock:badutf8', 'MT003' ], [ 'mock:nul', 'MT003' ],
		[ 'mock:fail too-long', '54000' ])
	{
		my ($text, $sqlstate) = @$case;
		my %ask = both('', 'one', $text, 'two', $text);
		foreach my $kind (qw(array document))
		{
			my ($code, $out, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\nSELECT $ask{$kind}");
			like($err, qr/ERROR:  $sqlstate/, "$kind: $text");
		}
		%ask = both(", on_error => 'null'", 'one', $text, 'two', $text);
		is(ask($ask{$_}), "zh>en: one\n(null)\nzh>en: two\n(null)", "$_: null in its place") foreach qw(array document);
		%ask = both(", on_error => 'source'", 'one', $text, 'two', $text);
		is(ask($ask{$_}), "zh>en: one\n$text\nzh>en: two\n$text", "$_: the source in its place") foreach qw(array document);
	}

	my $document = q({"a": "secret one", "b": {"c.d": [1, "secret two", "mock:fail internal"]}});
	my ($code, undef, $err) = $node->psql('postgres', "SELECT hymt_translate_json('$document', 'zh', 'en', '{a,b}')");
	like($err, qr/^CONTEXT:  JSON document, path b\."c\.d"\.2$/m, 'an error names the place');
	unlike($err =~ s/^LINE.*//mrs, qr/secret|fail internal/, 'and no text');
	($code, undef, $err) = $node->psql('postgres', "SELECT hymt_translate_json(jsonb_build_object('a', 'b', 'long', repeat('word ', 2000000)), 'zh', 'en', '{*}', on_error => 'null')");
	like($err, qr/too long to be translated.*^CONTEXT:  JSON document, path long$/ms, 'a string that queue memory cannot hold');
	($code, undef, $err) = $node->psql('postgres', "SET statement_timeout = '300ms'; SELECT hymt_translate_json('[\"mock:sleep 30\", \"x\"]', 'zh', 'en', '{*}')");
	like($err, qr/statement timeout/, 'a timeout');
	unlike($err, qr/CONTEXT/, 'is no error of a string');
	is( $node->safe_psql('postgres', <<'END'), "MT007\n{\"a\": \"zh>en: x\"}", 'an exception that is caught leaves nothing');
CREATE FUNCTION caught() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM hymt_translate_json(document('x', 200, 'mock:fail language'), 'zh', 'en', '{goods}');
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
SELECT caught();
SELECT hymt_translate_json('{"a": "x"}', 'zh', 'en', '{a}') FROM hymt_status WHERE slots_in_use = 0;
END
};

scenario 'a database in another encoding' => sub {
	$node->safe_psql('postgres', "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
	$node->safe_psql('latin', 'CREATE EXTENSION hymt');
	is( $node->safe_psql('latin', "SET client_encoding = 'UTF8'; SELECT hymt_translate_json('{\"größe\": [\"süß\", \"mock:chinese\"]}', 'de', 'en', '{größe.*}', on_error => 'null')"),
		'{"größe": ["de>en: süß", null]}', 'strings and paths are converted');
	my ($code, undef, $err) = $node->psql('latin', "SET client_encoding = 'UTF8'; SELECT hymt_translate_json('{\"größe\": [\"süß\", \"mock:chinese\"]}', 'de', 'en', '{größe}')");
	like($err, qr/U\+81EA.*^CONTEXT:  JSON document, path größe\.1$/ms, 'a character that it lacks');
	($code, undef, $err) = $node->psql('latin', "SET client_encoding = 'UTF8'; SELECT hymt_translate_json('{}', 'de', 'en', '{größe..a}')");
	like($err, qr/At character 7:/, 'characters of a path are counted');
};

# --- random documents --------------------------------------------------------------------------------------------

my @keys = ('a', 'b', 'key', '0', '1', '-1', '', '*', 'a.b', '"', '\\', '键', 'a b');

sub random_value
{
	my ($depth) = @_;
	my $kind = $depth == 0 ? 5 + rand 4 : int rand($depth > 3 ? 5 : 9);

	return { map { ($keys[ rand @keys ] => random_value($depth + 1)) } 1 .. rand 5 } if $kind >= 7;
	return [ map { random_value($depth + 1) } 1 .. rand 5 ] if $kind >= 5;
	return (int rand 1000, JSON::PP::true, undef, '', 'word ' . int rand 30)[$kind];
}

# As a list of steps: undef for a star, [ key, whether it is in double quotes ].
sub random_path
{
	return map { rand() < 0.3 ? undef : [ $keys[ rand @keys ], rand() < 0.3 ] } 1 .. rand 5;
}

sub path_text
{
	return join '.', map {
		!defined $_ ? '*' : $_->[1] || $_->[0] eq '' || $_->[0] =~ /[.*"\\]/ ? '"' . $_->[0] =~ s/(["\\])/\\$1/gr . '"' : $_->[0]
	} @_;
}

# What is to become of a value that these paths lead into; another way of finding out than that of the extension.
sub expected
{
	my ($value, $paths) = @_;

	if (ref $value eq 'HASH')
	{
		return { map {
			my $key = $_;
			($key => expected($value->{$key}, rest($paths, sub { $_[0][0] eq $key })))
		} keys %$value };
	}
	if (ref $value eq 'ARRAY')
	{
		return [ map {
			my $number = $_;
			expected($value->[$number], rest($paths, sub { !$_[0][1] && $_[0][0] =~ /^-?\d+$/ && ($number == $_[0][0] || $number == @$value + $_[0][0] && $_[0][0] < 0) }))
		} 0 .. $#$value ];
	}
	return $value if ref $value || !defined $value || $value !~ /^word/;
	return (grep { !@$_ } @$paths) ? "zh>en: $value" : $value;
}

# The paths that go on, without their first step. One that has ended goes on everywhere.
sub rest
{
	my ($paths, $fits) = @_;

	return [ map { [ @$_[ 1 .. $#$_ ] ] } grep { !@$_ || !defined $_->[0] || $fits->($_->[0]) } @$paths ];
}

scenario 'random documents and paths' => sub {
	my $json = JSON::PP->new->canonical->allow_nonref->utf8(0);
	my $sql = 'CREATE TABLE random (id int, document jsonb, paths text[], expected jsonb);';

	srand(5);
	foreach my $id (1 .. 2000)
	{
		my $document = random_value(0);
		my @paths = map { [ random_path() ] } 1 .. 1 + rand 4;
		my $paths = join ', ', map { '$q$' . path_text(@$_) . '$q$' } @paths;

		$sql .= sprintf("INSERT INTO random VALUES (%d, \$q\$%s\$q\$, ARRAY[%s]::text[], \$q\$%s\$q\$);\n",
			$id, $json->encode($document), $paths, $json->encode(expected($document, \@paths)));
	}
	$node->safe_psql('postgres', $sql);
	is( $node->safe_psql('postgres', "SELECT * FROM random WHERE hymt_translate_json(document, 'zh', 'en', paths) IS DISTINCT FROM expected"),
		'', 'each as it should be');
	cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM random WHERE document <> expected'), '>', 300, 'many have something to translate');
};

# --- in the middle -----------------------------------------------------------------------------------------------

# Many strings, one of which is special. The number of those that are there afterwards.
sub middle
{
	my ($kind, $special, $rest) = @_;

	return "SELECT count(t) FROM unnest(hymt_translate(texts('middle', 1000, \$q\$$special\$q\$), 'zh', 'en'$rest)) AS t" if $kind eq 'array';
	return "SELECT count(*) FROM jsonb_path_query(hymt_translate_json(document('middle', 999, \$q\$$special\$q\$), 'zh', 'en', '{goods}'$rest), " .
	  "'\$.goods.names[*]') AS t WHERE jsonb_typeof(t) = 'string'";
}

scenario 'cancel and terminate in the middle' => sub {
	foreach my $kind (qw(array document))
	{
		foreach my $way ([ 'pg_cancel_backend', qr/57014/ ], [ 'pg_terminate_backend', qr/57P01|connection/ ])
		{
			my $session = background($node, middle($kind, 'mock:sleep 30', ''));
			my $pid = session_pid($node, $session);

			ok(wait_until($node, "SELECT count(*) FROM hymt_stat_activity WHERE pid = $pid AND state = 'claimed' AND text_bytes = 13", 1), "$kind: under way");
			$node->safe_psql('postgres', "SELECT $way->[0]($pid)");
			like(finish($session)->{err}, $way->[1], "$kind: $way->[0]");
			wait_for_all_free($node, "$kind: $way->[0]");
		}
	}
};

scenario 'an engine that dies in the middle' => sub {
	my $identity = server_identity($node);

	foreach my $kind (qw(array document))
	{
		my $session = finish(background($node, middle($kind, 'mock:crashonce ' . file('crashed'), '')));
		is($session->{out} . $session->{err}, 1000, "$kind: all is translated after all");
		$session = finish(background($node, middle($kind, 'mock:crash', ", on_error => 'null'")));
		is($session->{out} . $session->{err}, 999, "$kind: a text that kills engines fails alone");
		$session = finish(background($node, middle($kind, 'mock:crash', '')));
		like($session->{err}, qr/MT002/, "$kind: or is an error");
	}
	is_undisturbed($node, $identity, 'crashes in the middle of batches');
};

# --- details -----------------------------------------------------------------------------------------------------

scenario 'what details cost' => sub {
	$node->safe_psql('postgres', "CREATE TABLE products AS SELECT id, 'title ' || id AS title FROM generate_series(1, 20) AS id; ANALYZE products");
	my %form = (
		'LATERAL' => "SELECT p.id, d.* FROM products AS p, LATERAL hymt_translate_details(p.title, 'zh', 'en') AS d",
		'subquery' => "SELECT id, (d).* FROM (SELECT id, hymt_translate_details(title, 'zh', 'en') AS d FROM products OFFSET 0) AS s",
		'MATERIALIZED' => "WITH s AS MATERIALIZED (SELECT id, hymt_translate_details(title, 'zh', 'en') AS d FROM products) SELECT id, (d).* FROM s",
		'star' => "SELECT id, (hymt_translate_details(title, 'zh', 'en')).* FROM products");

	foreach my $ahead (qw(on off))
	{
		is(requests_of("SELECT * FROM ($form{$_}) AS x") , 20, "$_: once for each row") foreach qw(LATERAL subquery MATERIALIZED);
		$node->safe_psql('postgres', "ALTER SYSTEM SET hymt.read_ahead = off; SELECT pg_reload_conf()");
		wait_until($node, 'SHOW hymt.read_ahead', 'off');
	}
	is(requests_of($form{star}), 200, 'a star behind the call: once for each row and column');
	$node->safe_psql('postgres', "ALTER SYSTEM RESET hymt.read_ahead; SELECT pg_reload_conf()");
	wait_until($node, 'SHOW hymt.read_ahead', 'on');
	cmp_ok(requests_of($form{star}), '>', 20, 'with reading ahead still more than once for a row');
	like($node->safe_psql('postgres', "EXPLAIN $form{$_}"), qr/HymtReadAhead/, "$_: read ahead") foreach qw(LATERAL subquery MATERIALIZED);
};

scenario 'without preloading' => sub {
	$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
	$node->restart;
	my $identity = server_identity($node);
	my %ask = both('', 'one', 'two');

	like(finish(background($node, "SELECT $ask{$_}"))->{err}, qr/ERROR:  55000/, "$_: an error") foreach qw(array document);
	is_undisturbed($node, $identity, 'and nothing worse');
	$node->stop;
};

done_testing();
