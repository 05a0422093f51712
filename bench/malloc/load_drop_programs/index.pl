# SPDX-License-Identifier: Apache-2.0
# Perl: an index of words with lists of places, most words are forgotten. Marks as in marks.py.
use strict;
use warnings;
$| = 1;
my $scale = $ENV{LOAD_DROP_SCALE} // 1;
my %places;

sub mark {
    print "phase $_[0]\n";
    select undef, undef, undef, 0.2;
}

for my $cycle (1 .. $ENV{LOAD_DROP_CYCLES} // 3) {
    srand $cycle;
    while (keys %places < 40000 * $scale) {
        my $word = join '', map { chr 97 + int rand 26 } 1 .. 4 + rand 12;
        $places{$word} = [map { "page " . int(rand 1e6) . 'x' x rand(30 * $cycle) } 1 .. 1 + rand 20];
    }
    mark("full$cycle");
    for my $word (sort keys %places) {
        delete $places{$word} if rand() < 0.9;
    }
    select undef, undef, undef, $ENV{LOAD_DROP_SETTLE} // 6;
    mark("settled$cycle");
}
