# Adapters of the real engine: assigned by hymt.adapters, seen in the fingerprint, and what callers get of one that
# cannot be used.
use strict;
use warnings;

use FindBin;
use HymtTest;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $config = JSON::PP->new->utf8->decode(slurp_file("$FindBin::RealBin/../../models/demo/config.json"));
my ($hidden, $inner, $layers) = @$config{qw(hidden_size intermediate_size num_hidden_layers)};

# A random adapter of all down_proj, rank 2.
sub make_adapter
{
	my ($directory, $seed) = @_;
	my (%header, $data);

	srand($seed);
	$data = '';
	foreach my $layer (0 .. $layers - 1)
	{
		foreach my $part ([ 'lora_A', 2, $inner ], [ 'lora_B', $hidden, 2 ])
		{
			my ($name, $rows, $columns) = @$part;
			my $bytes = pack('f<*', map { (rand() - 0.5) * 0.3 } 1 .. $rows * $columns);

			$header{"base_model.model.model.layers.$layer.mlp.down_proj.$name.weight"} =
			  { dtype => 'F32', shape => [ $rows, $columns ], data_offsets => [ length $data, length($data) + length $bytes ] };
			$data .= $bytes;
		}
	}
	my $text = JSON::PP->new->canonical->encode(\%header);
	$text .= ' ' x (-length($text) % 8);
	mkdir $directory;
	open my $file, '>:raw', "$directory/adapter_model.safetensors" or die $!;
	print $file pack('Q<', length $text) . $text . $data;
	close $file or die $!;
	append_to_file("$directory/adapter_config.json",
		'{"peft_type": "LORA", "r": 2, "lora_alpha": 16, "target_modules": ["down_proj"]}');
	return;
}

# What the command line gives.
sub expected
{
	my ($node, $target, @options) = @_;
	my $engine = $node->config_data('--pkglibdir') . '/hymt-engine';
	my $out;

	IPC::Run::run([ $engine, 'translate', '--model', "$FindBin::RealBin/../../models/demo", '--from', 'en', '--to', $target,
			@options ], '<', \"red bicycle\n", '>', \$out) or die 'hymt-engine failed';
	chomp $out;
	return $out;
}

sub set_adapters
{
	my ($node, $list) = @_;
	my $before = status($node, 'fingerprint');

	$node->safe_psql('postgres', "ALTER SYSTEM SET hymt.adapters = '$list'");
	$node->reload;
	ok(wait_for_status($node, "state = 'ready' AND fingerprint <> '$before'"), 'the new list has another fingerprint');
	return;
}

# The translation, or SQLSTATE, message, detail and hint.
sub ask
{
	my ($node, $target, $role, $adapter) = @_;
	my $options = $adapter ? qq(, options => '{"adapter": "$adapter"}') : '';
	my ($code, $out, $err) = $node->psql('postgres', ($role ? "SET ROLE $role; " : '') .
		"\\set VERBOSITY verbose\nSELECT hymt_translate('red bicycle', 'en', '$target'$options)");

	return $code == 0 ? $out : $err;
}

my $node = hymt_node('adapters', model => 'demo/', conf => "hymt.engine = ''\nhymt.model = 'demo'");
my $one = $node->basedir . '/one';
my $late = $node->basedir . '/late';
make_adapter($one, 1);
wait_for_status($node, "state = 'ready'");
my %plain = map { $_ => expected($node, $_) } qw(de fr zh);
my $adapted = expected($node, 'de', '--adapter', $one);
isnt($adapted, $plain{de}, 'the adapter changes the translation');
is(ask($node, $_), $plain{$_}, "without adapters: $_") foreach qw(de fr zh);

scenario 'assigned' => sub {
	my $fingerprint = status($node, 'fingerprint');

	set_adapters($node, "de=$one, zh>fr=$one");
	is(ask($node, 'de'), $adapted, 'the language has its adapter');
	is(ask($node, $_), $plain{$_}, "$_ has none") foreach qw(fr zh);
	set_adapters($node, "\@formal=$one");
	is(ask($node, 'de'), $plain{de}, 'who names none gets none');
	is(ask($node, 'de', undef, 'formal'), $adapted, 'who names it gets it');
	like(ask($node, 'de', undef, 'casual'), qr/22023.*"casual"/, 'a name that is none');
	is($node->safe_psql('postgres', "SELECT hymt_translate(ARRAY['red bicycle', 'red bicycle'], 'en', 'de', "
			  . "options => '{\"adapter\": \"formal\"}')"), "{\"$adapted\",\"$adapted\"}" =~ s/"(\w+)"/$1/gr, 'arrays too');
	set_adapters($node, '');
	is(ask($node, 'de'), $plain{de}, 'and again none');
	is(status($node, 'fingerprint'), $fingerprint, 'the fingerprint is what it was');
};

scenario 'cannot be used' => sub {
	my $start = -s $node->logfile;
	my $engine;

	$node->safe_psql('postgres', 'CREATE ROLE shop; CREATE ROLE chief IN ROLE pg_read_all_settings; '
		  . 'GRANT EXECUTE ON FUNCTION hymt_translate(text, text, text, text, text, text, text, jsonb) TO shop, chief');
	set_adapters($node, "de=$one, fr=$late");
	like(slurp_file($node->logfile, $start), qr/hymt: engine .*adapter for fr cannot be used.*\Q$late\E/, 'the log tells at once');
	$engine = status($node, 'engine_pid');
	is(ask($node, 'de'), $adapted, 'others are not touched');
	is(ask($node, 'zh'), $plain{zh}, 'nor are those without');
	like(ask($node, 'fr', 'chief'), qr/MT008.*\Q$late\E.*hymt\.adapters/s, 'who may see settings is told the file');
	like(ask($node, 'fr', 'shop'), qr/MT008/, 'others get the code');
	unlike(ask($node, 'fr', 'shop'), qr/\Q$late\E/, 'and no path');
	is($node->safe_psql('postgres', "SELECT failed_unavailable > 0 FROM hymt_stat"), 't', 'it is counted');
	my (undef, undef, $lenient) = $node->psql('postgres',
		"\\set VERBOSITY sqlstate\nSELECT hymt_translate('red bicycle', 'en', 'fr', on_error => 'null')");
	like($lenient, qr/ERROR:  MT008/, 'on_error does not hide it');
	make_adapter($late, 2);
	is(ask($node, 'fr', 'shop'), expected($node, 'fr', '--adapter', $late), 'when it is there it is used');
	is(status($node, 'engine_pid'), $engine, 'by the same engine');
};

scenario 'the setting' => sub {
	foreach my $list ('de', 'de=', 'xx=/x', 'de=/x, de=/y', '=/x', 'de=/x,,fr=/y', '\@a b=/x', '\@a=/x,\@a=/y', 'de=' . 'x' x 9000)
	{
		my ($code, $out, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\nALTER SYSTEM SET hymt.adapters = '$list'");

		like($err, qr/22023/, 'refused: ' . substr($list, 0, 20));
	}
	like(ask_setting($node, 'shop'), qr/42501/, 'others may not see it');
	like(ask_setting($node, 'chief'), qr/de=/, 'some may');
};

sub ask_setting
{
	my ($node, $role) = @_;
	my ($code, $out, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\nSET ROLE $role; SHOW hymt.adapters");

	return "$out$err";
}

$node->stop;
done_testing();
