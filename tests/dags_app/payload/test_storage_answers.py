"""What a storage said decides whether an input file is to blame: a failure of access is never its fault, that it is gone is.

The texts are those of XRootD's client and servers, dCache, EOS, DPM, StoRM, gfal, davix, SRM, gridftp, POSIX and ROOT.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from dags_app.payload.contract.rules import RuleBook
from dags_app.payload.post.classify import Classification, policy
from dags_app.payload.post.evidence import evidence_of_ending, read_report
from tests.support.payload_workbench import LIMITS, shipped_rules

BOOK = RuleBook(shipped_rules(), LIMITS)
LFN = "/store/data/Run2026A/Muon0/RAW/v1/000/390/001/00000/1c2d3e4f-0a1b-4c5d-8e9f-a0b1c2d3e4f5.root"
URL = f"root://xrootd.site.example//{LFN.lstrip('/')}"
XRD = "[ERROR] Server responded with an error: "

#: The storage was not reached, did not believe the job, or had no room for it; the file may be well.
ACCESS = """
[FATAL] Auth failed
[FATAL] Auth failed: No protocols left to try
[FATAL] Login failed
[FATAL] Hand shake failed
[FATAL] Connection error
[FATAL] Invalid address
[FATAL] TLS error
[FATAL] TLS error: error:0A000086:SSL routines::certificate verify failed
[FATAL] Socket error
[ERROR] Socket timeout
[ERROR] Stream disconnect
[ERROR] Socket disconnected
[ERROR] Operation expired
[ERROR] Operation interrupted
[ERROR] Internal error
[ERROR] Invalid session
[ERROR] Invalid response
[ERROR] Received corrupted data
[ERROR] Corrupted header
[FATAL] Redirect limit has been reached
[ERROR] Too many redirects
{XRD}[3005] Unable to open file; no replica available
{XRD}[3005]
{XRD}[3007] Unable to read {LFN}; input/output error
{XRD}[3008] insufficient memory to process the request
{XRD}[3010] Unable to open {LFN}; permission denied
{XRD}[3010] Restriction on path: not authorised
{XRD}[3010] user access restricted - unauthorized identity used
{XRD}[3012] Internal timeout
{XRD}[3012] Failed to open file: pool unavailable
{XRD}[3012] Server too busy; retry later
{XRD}[3014] no servers are subscribed
{XRD}[3020] prepare in progress
{XRD}[3024] server is overloaded
{XRD}[3028] TLS is required
{XRD}[3029] no more replicas exist
{XRD}[3030] authentication failed; no valid credential
{XRD}[3034] request timed out
{XRD}[3005] Unable to open {LFN}; Machine is not on the network
{XRD}[3005] Unable to open {LFN}; Resource temporarily unavailable
{XRD}[3012] File not online. Staging not allowed.
{XRD}[3012] Unable to open {LFN}; file system is read-only and draining
{XRD}[3011] Plugin No such file or directory loading sec.protocol libXrdSeckrb5-5.so
Secgsi: ErrParseBuffer: certificate chain verification failed: kXGS_cert
Secgsi: no valid proxy found: No such file or directory: /tmp/x509up_u500
BEARER_TOKEN_FILE /srv/token: No such file or directory
/var/run/secrets/scitoken: No such file or directory
sec_PM: libXrdSecztn.so: cannot open shared object file: No such file or directory
Seckrb5: No or invalid credentials; cannot find KDC for realm "CERN.CH"
krb5: No credentials cache found (filename: /tmp/krb5cc_1000)
krb5: Credentials cache file '/tmp/krb5cc_1000' not found
GSS Major Status: Authentication Failed; GSS Minor Status Error Chain: globus_gsi_gssapi: SSL handshake problems
GSS failure: Ticket expired
ztn: token file not found
unable to find a bearer token in the environment
Token expired
token has an untrusted issuer
the scope of the token does not cover this path: storage.read
Could not verify token: invalid signature
failed to fetch the keys of the issuer: HTTP 404 : Not Found
unable to get local issuer certificate
self-signed certificate in certificate chain
certificate verify failed: certificate has expired
SSL_connect: SSL_ERROR_SYSCALL in connection to se.example:1094
error:1408F10B:SSL routines:ssl3_get_record:wrong version number
sslv3 alert handshake failure
tlsv1 alert unknown ca
CRL has expired
SSL: decryption failed or bad record mac
user mapping failed for DN /DC=ch/DC=cern/CN=wms2
no mapping for identity, access denied
(Neon): Could not authenticate to server: rejected Basic challenge
HTTP 401 : Authentication Error after 1 attempts
HTTP 403 : Permission refused
HTTP/1.1 403 Forbidden
Result HTTP 407 after 1 attempts
HTTP 408 : Request timeout
HTTP 423 : Locked
HTTP 429 : Too Many Requests
HTTP 500 : Unexpected server error: 500
HTTP 502 : Bad Gateway
HTTP/1.1 503 Service Unavailable
HTTP 504 : Gateway timeout
HTTP 507 : Insufficient storage
status code: 451
TDavixFile: can not open file with davix: HTTP 403 : Permission refused (6)
TDavixFile: failed with HTTP 503; file {URL} is not a ROOT file
Could not resolve host: se.example
getaddrinfo: Name or service not known
Temporary failure in name resolution
Host not found (authoritative)
java.net.UnknownHostException: DNS name not found
nodename nor servname provided, or not known
connect: No route to host
Network is unreachable
Connection refused
Connection reset by peer
Connection timed out after 30 s
Connection closed by peer
Connection to pool broken
Broken pipe
Host is down
Software caused connection abort
Cannot assign requested address
Transport endpoint is not connected
Stale file handle
Input/output error
open() failed with system error 'Permission denied' (error code 13)
open() failed with system error 'Too many open files' (error code 24)
open() failed with system error 'Input/output error' (error code 5)
open() failed with system error 'No such device or address' (error code 6)
open() failed with system error 'Operation not permitted' (error code 1)
Resource temporarily unavailable
Device or resource busy
Cannot allocate memory
No space left on device
Operation timed out
Timeout was reached
The server did not respond for 600 seconds
Operation too slow. Less than 1 bytes/sec transferred the last 300 seconds
Communication error on send
srm-ifce err: Communication error on send, err: CGSI-gSOAP reports Error initializing context: Unknown CA
[SE][PrepareToGet][SRM_FILE_BUSY] file is being migrated
[SE][StatusOfGetRequest][SRM_FILE_UNAVAILABLE] no disk server
[SE][PrepareToGet][SRM_AUTHORIZATION_FAILURE] Permission denied
[SE][PrepareToGet][SRM_AUTHENTICATION_FAILURE] no mapping
[SE][PrepareToGet][SRM_INTERNAL_ERROR] Too many threads busy
[SE][PrepareToGet][SRM_REQUEST_TIMED_OUT]
[SE][Ls][SRM_FAILURE] try again later
globus_ftp_client: the server responded with an error 530 Login incorrect. : globus_gss_assist: Error invoking callout: gridmap
globus_ftp_client: the server responded with an error 421 Service busy: Connection limit exceeded. Please try again later.
globus_ftp_client: the server responded with an error 426 Transfer aborted
globus_xio: Unable to connect to se.example:2811
an end-of-file was reached: globus_xio: An end of file occurred: connection closed
dcap: Server rejected "hello"
dcap: Error [10006]: Pool manager did not respond
Error [10010] (No pools online) failed to open file in the dCache
Maximum number of connections reached
too many connections from this client
request queue is full
Rate limit exceeded
per-user limit on open files reached
File is nearline; staging of files is not permitted
The file is on tape and being recalled
Server is in maintenance
disk server is offline
The file system of this replica is not mounted: /data17
gfal-copy error: 70 (Communication error on send) - connection interrupted
gfal-copy error: 93 (Protocol not supported) - protocol not supported or path/url invalid
gfal-copy error: 110 (Connection timed out) - TIMEOUT
gfal-copy error: 5 (Input/output error) - Could not open source
gfal2: unable to load plug-in libgfal_plugin_http.so: No such file or directory
xrdcp: command not found
Logical file name '{LFN}' was not found in the file catalog
storage.json: no such file or directory: /cvmfs/cms.cern.ch/SITECONF/local/storage.json
Cannot open /etc/grid-security/certificates: No such file or directory
Storage::readv returned different size result=263352 expected=323232
XrdAdaptor: source se.example:1095 is too slow, no other source
Input file {URL} was not found, could not be opened, or is corrupted.
file could not be read for a reason unknown to this text
disk error, ask the operators
Error in <TNetXNGFile::Open>: {XRD}[3010] user access restricted - unauthorized identity used
Unable to open - stalled, please retry in 60 seconds
server not available at the moment
Unable to contact cmsd
[FATAL] Socket error: resource temporarily unavailable
[ERROR] Server responded with an error: [3006] Invalid request; user not authenticated
[ERROR] Query response negative
No proxy certificate
voms-proxy has expired
VOMS attributes could not be verified
The proxy certificate has expired
x509 proxy is about to expire in 0 seconds
authentication handshake failed
Request has been throttled
[ERROR] Unknown error
XrdSecGSI: failed to read CA file
getaddrinfo ENOTFOUND se.example
curl: (6) Could not resolve host: se.example
curl: (7) Failed to connect to se.example port 1094: Connection refused
curl: (28) Operation timed out after 30000 milliseconds
curl: (35) error:0A000410:SSL routines::sslv3 alert handshake failure
curl: (60) SSL certificate problem: unable to get local issuer certificate
curl: (22) The requested URL returned error: 403
curl: (22) The requested URL returned error: 503
The requested URL returned error: 500 Internal Server Error
503 Service Unavailable
401 Unauthorized
403 Forbidden
502 Bad Gateway
504 Gateway Time-out
Pool unavailable
No read pools configured for {LFN}
All pools are full
dCache: Failed to open file: File is unavailable [3012]
Failed to open file (Server error: pool 'dcpool12' is disabled)
Read denied: not allowed to restore file from tape
{XRD}[3005] Not configured
{XRD}[3012] Unable to open {LFN}; Operation not supported
{XRD}[3011] Unable to authenticate; no such file or directory
{XRD}[3005] Unable to open {LFN}; no such device
quota of open files exceeded
Kerberos credentials not available
Unspecified GSS failure. Minor code may provide more information (Server not found in Kerberos database)
cannot find KDC
kinit: Preauthentication failed
Token validation failed: audience mismatch
JWT is expired
scitokens: failed to validate
could not obtain token from /run/user/500/bt_u500: No such file or directory
BEARER_TOKEN_FILE not found
open /tmp/bt_u500: no such file or directory
The certificate of the server does not match its host name
hostname mismatch in certificate
peer certificate cannot be authenticated with given CA certificates
EACCES
ETIMEDOUT
EIO reading block 77
errno=13
errno=111
errno=110
errno=5
error 107 (Transport endpoint is not connected)
File server unreachable
mount point /eos/cms is not available
fuse: bad mount point `/eos': Transport endpoint is not connected
cvmfs not mounted: /cvmfs/cms.cern.ch: No such file or directory
mds: request stalled
Lustre: cannot send after transport endpoint shutdown
ceph: connection lost
no active mover
Movers limit exceeded
Maximum concurrent transfers reached
slots exhausted
waiting for a free slot: queue full
Resource limit: too many files open for this user
Login denied: too many sessions
server closed connection without response
HTTP/2 stream 1 was not closed cleanly: INTERNAL_ERROR
Recv failure: Connection reset by peer
Empty reply from server
Operation canceled
davix: unable to connect to storage
Davix: maximum redirection count exceeded
Davix error: Session error
Redirect loop detected
Too many redirections
redirector did not find a data server in time
manager is suspended
cmsd: no active servers; cluster is starting
Manager is recovering; try later
namespace is down for an upgrade
MGM is booting
The storage is closed for an intervention
unable to reach the redirector
read error: short read, connection broke
[SE][GetSpaceTokens][SRM_INVALID_REQUEST] unknown token
[SE][PrepareToGet][SRM_FILE_UNAVAILABLE] No such file or directory on this disk server
SRM_NO_FREE_SPACE
globus_ftp_client: the server responded with an error 451 General problem: host busy
globus_ftp_client: the server responded with an error 550 Permission denied
GridFTP: 500 End. authorization error
{XRD}[3011] Unable to open file - no replica is online /eos/cms{LFN}
XCache: [3011] Unable to open {LFN}; cache disk full
pelican: no caches or origins found for the path; director returned 404
NoSuchBucket: The specified bucket does not exist
InvalidAccessKeyId: The AWS Access Key Id does not exist in our records
HTTP signature checksum mismatch
unexpected end of file from server
Premature end of Content-Length delimited message body (expected: 300; received: 200)
HTTP 200 but truncated response from proxy
read truncated by connection loss
{XRD}[3011] Unable to open file /eos/cms{LFN}; Failed to get proxy: no such file or directory
{XRD}[3011] Unable to open {LFN}; mount point not available
{XRD}[3011] Unable to open /xrdcache{LFN}; no such file or directory: cache origin unreachable
the requested site does not exist in the catalogue
user does not exist
[ERROR] Local error: file not found
Cannot open lock file: no such file or directory
"""

#: The storage said that the file is not there, or what it holds is damaged.
GONE = """
{XRD}[3011] No such file or directory
{XRD}[3011] No such file
{XRD}[3011] Unable to open {LFN}; no such file or directory
{XRD}[3011] Unable to open file /eos/cms{LFN}; No such file or directory
{XRD}[3011] Unable to open file /srv/xrootd{LFN}; No such file or directory
No such file or directory: /home/xrootd{LFN}
{XRD}[3011] file does not exist
{XRD}[3011] File not found
{XRD}[3011] Unable to locate {LFN}; no such file or directory
{XRD}[3011] No servers are available to read the file.
{XRD}[3011] No servers have read access to the file
{XRD}[3011] No servers have access to the file
{XRD}[3012] File {LFN} does not exist
{XRD}[3019] checksum mismatch
open() failed with system error 'No such file or directory' (error code 2)
{URL}: No such file or directory
No such file or directory: {URL}
TDCacheFile: file not found: {LFN}
dcap: {LFN} : No such file or directory
HTTP 404 : File not found
HTTP/1.1 404 Not Found
HTTP/2 404
(Neon): Could not PROPFIND {LFN}: 404 Not Found
Result HTTP 404 : File not found  after 1 attempts
HTTP 410 : Gone
status code: 404
TDavixFile: can not open file with davix: HTTP 404 : File not found (11)
[SE][Ls][SRM_INVALID_PATH] No such file or directory
[SE][PrepareToGet][SRM_INVALID_PATH] could not get storage info by path
[SE][StatusOfGetRequest][SRM_FILE_LOST] the file is lost
gfal-copy error: 2 (No such file or directory) - Could not stat the source
globus_ftp_client: the server responded with an error 550 550-GlobusError: v=1 c=PATH_NOT_FOUND 550 No such file or directory
<Code>NoSuchKey</Code><Message>The specified key does not exist.</Message>
FileNotFoundException: {LFN}
the file {LFN} has been deleted
file {URL} is truncated at 1048576 bytes: should be 2147483648, trying to recover
file {URL} is not a ROOT file
file {URL} probably not closed, no keys recovered, file has been made a Zombie
Fatal Root Error: @SUB=TStorageFactoryFile::Recover Address = 2625790965 Nbytes = 0 =====E R R O R=======
R__unzip: error -5 in inflate (zlib)
R__unzipLZMA: error 9 in lzma_code
R__unzipZSTD: error in ZSTD decompression: Data corruption detected
Fatal Root Error: @SUB=TBasket::ReadBasketBuffers fNbytes = 12345, fKeylen = 0, fObjlen = 0
Fatal Root Error: @SUB=TBasket::Streamer The value of fNbytes is incorrect (0)
Fatal Root Error: @SUB=TBufferFile::CheckByteCount object of class edm::EventAuxiliary read too few bytes: 12 instead of 66
error reading all requested bytes from file {URL}, got 0 of 300
adler32 checksum mismatch: 0a1b2c3d in the catalogue, 11223344 in the file
The checksum of the file does not match
the input file is corrupt: bad magic number
file {URL} has a zero length
unexpected end of file {URL} after 4096 bytes
file size mismatch: 4096 bytes instead of 2147483648
Error in <TNetXNGFile::Open>: {XRD}[3011] No such file or directory
{XRD}[3011] Unable to open - file does not exist {LFN}
{XRD}[3011] Unable to stat {LFN}; no such file or directory
{XRD}[3011] cannot locate the file
{XRD}[3011] Not found
{XRD}[3011] Unable to find file
{XRD}[3011] No servers are available to read the file (errno=3011, code=400)
{XRD}[3011] File is not there
open {LFN}: no such file or directory
stat: cannot stat '{LFN}': No such file or directory
SysError in <TFile::TFile>: file {LFN} can not be opened for reading No such file or directory
Error in <TFile::TFile>: file {LFN} does not exist
curl: (22) The requested URL returned error: 404
curl: (22) The requested URL returned error: 404 Not Found
404 Not Found
The requested file was not found on this server
the requested resource does not exist (HTTP status 404)
HTTP/1.1 410 Gone
Server returned HTTP response code: 404
Entry {LFN} not found
SURL does not exist
Source does not exist
Path does not exist
NoSuchKey
CacheException(rc=10001;msg=No such file or directory {LFN})
FileNotFoundCacheException: No such file or directory
file is lost
The file was deleted
Replica not found
No such entry
Error in <TFile::Init>: file {URL} is truncated at 12345 bytes: should be 99999, trying to recover
Warning in <TFile::Init>: file {URL} probably not closed, trying to recover
Error in <TFile::ReadBuffer>: error reading all requested bytes from file {URL}, got 200 of 300
Error in <TFile::Init>: {URL} not a ROOT file
Error in <TBasket::Streamer>: The value of fNbytes is incorrect (-12) ; trying to recover by setting it to zero
Error in <R__unzip_header>: error in header
Fatal Root Error: @SUB=TBranchElement::GetBasket File: {URL} at byte:4711, branch:x, entry:7, badread=1, nerrors=1, basketnumber=3
@SUB=TStorageFactoryFile::ReadBuffer xread returned 0. Asked to read n bytes: 300 from offset: 0 with file size: 0
corrupted file: invalid key
File has zero size
Adler32 mismatch
CRC check failed
checksums differ
LZ4 decompression failed
The file's content is damaged
the file is empty (0 bytes)
adler32 checksum of {URL} does not match: expected 1a2b3c4d got 00000001
Error in <TBufferFile::ReadClassBuffer>: object of class X: byte count mismatch
The file is not in the name space
The file ends before its last event
"""

FALLBACK = f"""An exception of category 'FallbackFileOpenError' occurred while
   [0] Constructing the EventProcessor
   [1] Constructing input source of type PoolSource
   [2] Calling RootInputFileSequence::initTheFile()
   [3] Calling StorageFactory::open()
   [4] Calling XrdFile::open()
Exception Message:
Failed to open the file 'root://federation.example//{LFN.lstrip("/")}'
   Additional Info:
      [a] Input file {URL} could not be opened.
Fallback Input file root://federation.example//{LFN.lstrip("/")} also could not be opened.
Original exception info is above; fallback exception info is below.
      [b] XrdCl::File::Open(name='{URL}', flags=0x10, permissions=0660) => error '%s' (errno=0, code=400). No
additional data servers were found.
      [c] Last URL tried: {URL}?tried=+1213se.example,&triedrc=enoent&xrdcl.requuid=b19e8174&xrd.gsiusrpxy=/tmp/x509up_u500
      [d] Problematic data server: se.example:1094
      [e] Disabled source: se.example:1094
"""  # fmt: skip
READING = f"""An exception of category 'FileReadError' occurred while
   [0] Processing  Event run: 390001 lumi: 7 event: 42 stream: 0
   [1] Running path 'reconstruction_step'
   [2] Calling method for module RawDataCollectorByLabel/'rawDataCollector'
   [3] Reading branch FEDRawDataCollection_rawDataCollector__LHC.
Exception Message:
Failed to read the file {URL}
   Additional Info:
      [a] %s
"""
OPENING = f"""An exception of category 'FileOpenError' occurred while
   [0] Constructing the EventProcessor
Exception Message:
Input file {URL} could not be opened: %s
"""
FORMS = {8020: ("FileOpenError", OPENING), 8021: ("FileReadError", READING), 8028: ("FallbackFileOpenError", FALLBACK)}


#: Codes under which each text is tried.
QUICK = "tests/dags_app/payload/test_storage_answers.py::test_a_failure_of_access_is_never_a_failure_of_the_file"
EACH = [1, pytest.param(3, marks=pytest.mark.deep(QUICK))]


def texts(table: str) -> list[str]:
    return [line.format(XRD=XRD, LFN=LFN, URL=URL) for line in table.strip().splitlines()]


def verdict_of(tmp_path: Path, code: int, kind: str, message: str, stderr: str = "", lfn: str = LFN) -> Classification:
    path = tmp_path / "FrameworkJobReport.xml"
    opened = f"<InputFile><LFN>{lfn}</LFN><PFN>root://xrootd.site.example/{lfn}</PFN></InputFile>"
    error = f'<FrameworkError ExitStatus="{code}" Type="{kind}">{escape(message)}</FrameworkError>'
    path.write_text(f"<FrameworkJobReport>{opened}{error}</FrameworkJobReport>")
    return policy(evidence_of_ending(read_report(path), code & 0xFF, stderr), BOOK)


def verdicts(tmp_path: Path, answer: str, each: int) -> list[Classification]:
    """Under some of the codes, in the report and in stderr alone."""
    line = f"[2026-11-26 10:00:00.000000 +0000][Error  ][XRootD] open of {URL} failed: {answer}"
    first = zlib.adler32(answer.encode())
    codes = [sorted(FORMS)[(first + n) % len(FORMS)] for n in range(each)]
    found = [verdict_of(tmp_path, code, FORMS[code][0], FORMS[code][1] % answer) for code in codes]
    return found + [verdict_of(tmp_path, code, FORMS[code][0], FORMS[code][1] % "see the log", line) for code in codes]


@pytest.mark.parametrize("each", EACH)
def test_a_failure_of_access_is_never_a_failure_of_the_file(tmp_path: Path, each: int) -> None:
    blamed = {answer for answer in texts(ACCESS) for verdict in verdicts(tmp_path, answer, each) if verdict.category == "data"}
    assert blamed == set()


@pytest.mark.parametrize("each", EACH)
def test_a_file_that_is_not_there_or_damaged_is_told_by_name(tmp_path: Path, each: int) -> None:
    missed = {
        (answer, verdict.code, verdict.rule)
        for answer in texts(GONE)
        for verdict in verdicts(tmp_path, answer, each)
        if (verdict.category, verdict.bad_input_files) != ("data", (LFN,))
    }
    assert missed == set()


def test_what_a_redirector_does_not_find_and_what_one_storage_refused_is_not_gone(tmp_path: Path) -> None:
    message = (FALLBACK % f"{XRD}[3011] No servers are available to read the file.").replace(
        "could not be opened.\nFallback", "could not be opened: [FATAL] Auth failed\nFallback"
    )
    assert verdict_of(tmp_path, 8028, "FallbackFileOpenError", message).category == "infrastructure"


@pytest.mark.parametrize("host", ["xrootd-proxy.x.example", "tls-door.x.example", "director.x.example", "offline.x.example"])
@pytest.mark.parametrize("dataset", ["Single-Token_busy", "Truncated-pT", "corrupt_zombie"])
@pytest.mark.parametrize(
    ("said", "category"),
    [(f"{XRD}[3011] No such file", "data"), ("HTTP 404 : File not found", "data"), ("see the log", "infrastructure")],
)
def test_names_of_hosts_and_files_are_no_answers(tmp_path: Path, host: str, dataset: str, said: str, category: str) -> None:
    lfn = f"/store/mc/R/{dataset}/AOD/v1/1/A.root"
    url = f"root://{host}/{lfn}"
    message = (FALLBACK % said).replace(URL, url).replace("se.example:", f"{host}:")
    verdict = verdict_of(tmp_path, 8028, "FallbackFileOpenError", message, lfn=lfn)
    assert (verdict.category, verdict.bad_input_files) == (category, (lfn,))


def test_stderr_speaks_of_this_file_only_where_it_does_not_name_another(tmp_path: Path) -> None:
    line = f"[2026-11-26 10:00:00 +0000][Error  ][XRootD] open of root://x//store/mc/pileup.root: {XRD}[3011] No such file"
    assert verdict_of(tmp_path, 8020, "FileOpenError", OPENING % "no reason", line).category == "infrastructure"
    assert (
        verdict_of(tmp_path, 8020, "FileOpenError", OPENING % "no reason", "ls: x.cfg: No such file or directory").rule
        == "cms-8020"
    )


def test_the_reason_is_what_the_storage_said(tmp_path: Path) -> None:
    reason = verdict_of(tmp_path, 8028, "FallbackFileOpenError", FALLBACK % "[FATAL] Auth failed").reason
    assert reason.startswith("exit code 8028 FallbackFileOpenError: Failed to open the file 'root://federation.example//store/")
    assert "'; [FATAL] Auth failed; " in reason
