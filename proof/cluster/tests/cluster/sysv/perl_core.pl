# The modules that come with Perl: a server answers in shared memory what it is
# asked through a queue, and says so with a semaphore.
use strict;
use warnings;
use IPC::Msg;
use IPC::Semaphore;
use IPC::SharedMem;
use IPC::SysV qw(IPC_CREAT);

my $key       = 4711;
my $queue     = IPC::Msg->new( $key, IPC_CREAT | 0600 ) or die "queue: $!";
my $semaphore = IPC::Semaphore->new( $key, 1, IPC_CREAT | 0600 ) or die "semaphore: $!";
my $memory    = IPC::SharedMem->new( $key, 4096, IPC_CREAT | 0600 ) or die "memory: $!";
$memory->attach or die "attach: $!";
for my $round ( 1 .. 20 ) {
    if ( $ARGV[0] eq 'server' ) {
        defined $queue->rcv( my $question, 100, 1, 0 ) or die "rcv: $!";
        $memory->write( "answer to $question", 0, 64 );
        $semaphore->op( 0, 1, 0 ) or die "op: $!";
    }
    else {
        $queue->snd( 1, "question $round", 0 ) or die "snd: $!";
        $semaphore->op( 0, -1, 0 ) or die "op: $!";
        my $answer = $memory->read( 0, 64 );
        $answer =~ s/\0.*//s;
        $answer eq "answer to question $round" or die "got $answer";
    }
}
print "done\n";
