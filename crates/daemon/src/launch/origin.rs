//! The side of the people: takes an order and carries it to the member.

use super::frame::{Order, Said, Start, VERSION, read_frame, write_frame};
use super::line::Line;
use super::newcomers::{HANDSHAKE, Newcomer};
use super::{PATIENCE, Place, Service, no_place};
use anyhow::{Context, Result, bail};
use pagemesh_os::seqpacket::Socket;
use pagemesh_wire::local::{MAX_PACKET, Reply, ReplyPacket, Request, RequestPacket};
use pagemesh_wire::peer::{Credentials, Health, Member};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;

impl Service {
    pub(super) fn take_order(&self, mut person: UnixStream, newcomer: Newcomer<'_>) -> Result<()> {
        let credentials = socket_peercred(&person)?;
        person.set_read_timeout(Some(HANDSHAKE))?;
        let Some(order) = read_frame::<Order>(&mut person)? else {
            return Ok(());
        };
        drop(newcomer);
        person.set_read_timeout(None)?;
        let Some(_place) = Place::take(&self.orders) else {
            return Ok(write_frame(&mut person, &no_place())?);
        };
        let start = Start {
            version: VERSION,
            credentials: Credentials {
                uid: credentials.uid.as_raw(),
                gid: credentials.gid.as_raw(),
                groups: Vec::new(),
            },
            program: order.program,
        };
        match self.reach(order.member, &start) {
            Ok(line) => carry(&person, line),
            Err(error) => {
                write_frame(&mut person, &Said::Refused(format!("{error:#}")))?;
                Ok(())
            }
        }
    }

    fn reach(&self, address: SocketAddr, start: &Start) -> Result<Line> {
        // Else anybody could send the daemon's word to any port of the world.
        let members = self.members().context("asking for the members")?;
        let known = |member: &&Member| member.address == address && member.health == Health::Alive;
        let Some(member) = members.iter().find(known) else {
            bail!("{address} is the address of no living member");
        };
        let stream = TcpStream::connect_timeout(&address, PATIENCE)
            .with_context(|| format!("TCP {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut line = self.call(stream, &member.key)?;
        line.stream.set_read_timeout(None)?;
        write_frame(&mut line.mouth, start)?;
        Ok(line)
    }

    /// Asks this very daemon, as any process may.
    pub(super) fn members(&self) -> Result<Vec<Member>> {
        let socket = Socket::connect_within(&self.socket, PATIENCE)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        for (_, hello) in Request::hellos("pagemesh launch") {
            if let Reply::Welcome { .. } = ask(&socket, hello)? {
                break;
            }
        }
        match ask(&socket, Request::Members)?.into_members() {
            Ok((.., members)) => Ok(members),
            Err(other) => bail!("unexpected {other:?}"),
        }
    }
}

fn ask(socket: &Socket, request: Request) -> Result<Reply> {
    let number = 1;
    socket.send_surely(&RequestPacket { number, request }.encode(), &[])?;
    let mut buffer = vec![0; MAX_PACKET];
    let packet = socket.recv_surely(&mut buffer)?.context("no answer")?;
    Ok(ReplyPacket::decode(&buffer[..packet.len])?.reply)
}

/// Carries bytes both ways until one end closes; then closes the other, which
/// is how a program learns that its user has gone.
fn carry(person: &UnixStream, line: Line) -> Result<()> {
    let Line {
        mut ear,
        mut mouth,
        stream,
        listed: _listed,
    } = line;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = io::copy(&mut &*person, &mut mouth);
            let _ = stream.shutdown(Shutdown::Both);
        });
        let _ = io::copy(&mut ear, &mut &*person);
        let _ = person.shutdown(Shutdown::Both);
    });
    Ok(())
}
