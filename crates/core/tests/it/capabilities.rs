//! Opening a segment by a capability (E19), which the driver has judged.

use crate::common::{CLIENT, Cluster};
use pagemesh_core::{Input, Reply, Request};
use pagemesh_wire::peer::{Policy, Refusal};
use pagemesh_wire::{ClientId, NodeId, SegmentId, Ticket};

const NODE: NodeId = NodeId(1);
const OTHER: ClientId = ClientId(99);

fn redeem(cluster: &mut Cluster, node: NodeId, segment: SegmentId, ticket: Ticket) -> Reply {
    let (client, request) = (OTHER, Request::Redeem { segment });
    let input = Input::Request {
        ticket,
        client,
        request,
    };
    cluster.input(node, input);
    cluster.settle();
    cluster.reply(ticket).cloned().expect("an answer at once")
}

#[test]
fn e19_a_capability_opens_only_what_is_open_here() {
    let mut cluster = Cluster::new(2);
    let segment = cluster.segment_of(Policy::default()).id;
    cluster.forget();
    let reply = redeem(&mut cluster, NODE, segment, Ticket(1 << 40));
    assert!(matches!(reply, Reply::Segment(info) if info.id == segment));
    assert!(cluster.sent.is_empty(), "nobody else is asked");

    // It counts: the segment stays open until this process has closed it, too.
    let close = |cluster: &mut Cluster, client| {
        cluster.input(NODE, Input::Closed { segment, client });
        cluster.settle();
    };
    close(&mut cluster, CLIENT);
    assert!(cluster.sent.is_empty());
    let reply = redeem(&mut cluster, NODE, segment, Ticket(2 << 40));
    assert!(matches!(reply, Reply::Segment(_)));
    close(&mut cluster, OTHER);
    close(&mut cluster, OTHER);
    let reply = redeem(&mut cluster, NODE, segment, Ticket(3 << 40));
    assert_eq!(reply, Reply::Refused(Refusal::NotFound));
    let unknown = SegmentId::new(NODE, 77);
    let reply = redeem(&mut cluster, NODE, unknown, Ticket(4 << 40));
    assert_eq!(reply, Reply::Refused(Refusal::NotFound));
}
