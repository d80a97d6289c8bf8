package outbox

// Headers of a published message, in Watermill's Metadata. The names with the prefix ce_ are the attributes of
// CloudEvents 1.0 (Cloud Native Computing Foundation) in the form that its Kafka protocol binding gives them; the first
// group is defined there, partitionkey by its Partitioning extension, and the rest are extension attributes of ours.
//
// Values are percent-encoded as the HTTP protocol binding says (§3.1.3.2): a space, a double quote, a percent sign and
// every byte outside printable ASCII become %XX. So no broker's rules for headers can split or lose them. A header whose
// value would be empty is left out.
const (
	HeaderSpecVersion     = "ce_specversion"     // "1.0"
	HeaderID              = "ce_id"              // the event's id, also the UUID of the message
	HeaderSource          = "ce_source"          // urn:daybook:<epoch>/<schema>
	HeaderType            = "ce_type"            // the event's type; "daybook.head" for a head, "daybook.skip" for a skip marker
	HeaderTime            = "ce_time"            // when it was recorded: RFC 3339, UTC, microseconds
	HeaderSubject         = "ce_subject"         // the stream, "account-42"; events only
	HeaderDataContentType = "ce_datacontenttype" // the media type of the payload
	HeaderPartitionKey    = "ce_partitionkey"    // what is kept in one order; see PartitionKey for what brokers take

	HeaderKind          = "ce_kind"          // a Kind: "event", "message" (has no stream), "head" or "skip" (have no payload)
	HeaderEpoch         = "ce_epoch"         // the epoch of the store
	HeaderTopic         = "ce_topic"         // the topic it was published on
	HeaderPartition     = "ce_partition"     // the store's partition, from 0
	HeaderPosition      = "ce_position"      // its place in the log
	HeaderPrevious      = "ce_previous"      // the position of the message before it on this topic and partition, or "0"
	HeaderStreamVersion = "ce_streamversion" // its place in the stream; events only
	HeaderSchemaVersion = "ce_schemaversion" // the version of the payload's shape
	HeaderTenant        = "ce_tenant"        // Metadata.Tenant
	HeaderCorrelationID = "ce_correlationid" // Metadata.CorrelationID
	HeaderCausationID   = "ce_causationid"   // Metadata.CausationID
	HeaderActor         = "ce_actor"         // Metadata.Actor
	HeaderFlags         = "ce_flags"         // the event's flags, when there are any
	HeaderRedriven      = "ce_redriven"      // "1" on what comes later than in its place, because it was set aside
)

const (
	// HeaderContentType repeats [HeaderDataContentType] for brokers and tools that know no CloudEvents, as it is; it is
	// never read, and left out when its value is not printable ASCII.
	HeaderContentType = "content-type"
	// HeaderPrefix precedes the name of every other header of the event's metadata. In the name what is no token
	// character of RFC 9110 (§5.6.2) is percent-encoded too. The headers traceparent and tracestate stand without prefix
	// and as they are, where W3C Trace Context looks for them, unless their value is not printable ASCII.
	HeaderPrefix = "header_"
)

const (
	specVersion = "1.0"
	redriven    = "1"
	headType    = "daybook.head"
	skipType    = "daybook.skip"
	// timeLayout always has six digits, so that texts of one length come out.
	timeLayout = "2006-01-02T15:04:05.000000Z"
)

// Kind of a published message.
type Kind string

const (
	// KindEvent is an event as it stands in the log.
	KindEvent Kind = "event"
	// KindMessage has bytes of its own, and no stream: what was enqueued, or mapped.
	KindMessage Kind = "message"
	// KindHead says that nothing else lies on its topic and partition up to its position. It is nobody's previous.
	KindHead Kind = "head"
	// KindSkip stands in the place of a message that its relay has set aside, because the broker refused it or one before it
	// of its partition key. That message comes later with HeaderRedriven. A marker with HeaderRedriven says that it never
	// comes: somebody has discarded it.
	KindSkip Kind = "skip"
)

// IsMessage reports whether there is something to take effect: heads and markers have nothing.
func (k Kind) IsMessage() bool { return k == KindEvent || k == KindMessage }
