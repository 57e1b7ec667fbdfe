# IPC::ShareLite: a value that grows with what is stored, under its own lock.
use strict;
use IPC::ShareLite;

my $share = IPC::ShareLite->new( -key => 1971, -create => 'yes', -destroy => 'no' )
    or die "share: $!";
for ( 1 .. 50 ) {
    $share->lock;
    $share->store( ( $share->fetch || 0 ) + 1 );
    $share->unlock;
}
# Both are done when both have counted.
for ( 1 .. 600 ) {
    $share->lock;
    my $count = $share->fetch;
    $share->unlock;
    if ( $count == 100 ) { print "done\n"; exit }
    select undef, undef, undef, 0.05;
}
die "never 100";
