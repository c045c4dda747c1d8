"""TLS in front of a PostgreSQL that is built without it: what a client sees is a server that speaks TLS.

A client asks for TLS with eight bytes (SSLRequest) and is answered 'S'; from then on everything is inside TLS. The
relay ends TLS and hands the rest to the server's socket. Who does not ask for TLS is sent away, like with `hostssl`.
"""

import socket
import ssl
import struct
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

SSL_REQUEST = struct.pack("!ii", 8, 80877103)
GSS_REQUEST = struct.pack("!ii", 8, 80877104)


class Authority:
    """A certificate authority of a test's own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = Ed25519PrivateKey.generate()
        self.certificate = folder / f"{name}.crt"
        made = self._begun(self._name, self._key).add_extension(x509.BasicConstraints(True, None), critical=True)
        self.certificate.write_bytes(made.sign(self._key, None).public_bytes(Encoding.PEM))

    def _begun(self, subject: x509.Name, key: Ed25519PrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        begun = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key.public_key())
        begun = begun.serial_number(x509.random_serial_number())
        return begun.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=2))

    def server(self, name: str) -> ssl.SSLContext:
        """What a server of that name shows."""
        key = Ed25519PrivateKey.generate()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(ip_address("127.0.0.9"))])
        made = self._begun(subject, key).add_extension(names, critical=False).sign(self._key, None)
        shown = self.folder / f"{name}.pem"
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        shown.write_bytes(private + made.public_bytes(Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(shown)
        return context


class Relay:
    """Listens on this machine until it is closed; `shown` None: a server that speaks no TLS."""

    def __init__(self, server: Path, shown: ssl.SSLContext | None) -> None:
        self._server = server
        self._shown = shown
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self.inside_tls = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept nobody any more."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            asked = client.recv(8)
            while asked == GSS_REQUEST:
                client.sendall(b"N")
                asked = client.recv(8)
            if asked != SSL_REQUEST:
                return
            if self._shown is None:
                client.sendall(b"N")
                return
            client.sendall(b"S")
            with self._shown.wrap_socket(client, server_side=True) as inside, socket.socket(socket.AF_UNIX) as server:
                self.inside_tls += 1
                server.connect(str(self._server))
                _join(inside, server)


def _join(client: ssl.SSLSocket, server: socket.socket) -> None:
    """Hand over what either says until one of them ends."""
    back = threading.Thread(target=_pump, args=(server, client), daemon=True)
    back.start()
    _pump(client, server)
    back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
