"""Metal's messages: which object takes them, what they take, what comes back; functions of its libraries; enumerations.

In       nothing
Out      Message and Function, one object for each that the driver uses; numbers
Next     ../objc.py (who sends them), hcq/emu/metal/runtime.py (who answers where there is no Mac)
Source   metal-cpp's MTLDevice.hpp, MTLCommandQueue.hpp, MTLCommandBuffer.hpp, MTLCommandEncoder.hpp,
         MTLComputeCommandEncoder.hpp, MTLBlitCommandEncoder.hpp, MTLBuffer.hpp, MTLResource.hpp, MTLTypes.hpp,
         MTLLibrary.hpp, MTLComputePipeline.hpp, NSString.hpp, NSArray.hpp, NSError.hpp; MTLEvent.h; objc/runtime.h;
         CGColorSpace.h;
         "Objective-C Runtime Programming Guide", "Type Encodings"; Metal Feature Set Tables (figures of families)

An encoding is the type of the result, then those of the receiver (@), of the selector (:) and of each argument: @ an
object, Q an unsigned number of 64 bits, B a bool, C a byte, d a double, ^ a pointer, * a text, {...} a structure by
value; ? is one without a name. Offsets and qualifiers (const, oneway) of the runtime's own encodings are left out: no
call depends on them. BOOL is B on arm64; where it is a signed char, on Intel's Macs, 0 and 1 are passed the same way.

The newest of these messages, waitUntilSignaledValue:timeoutMS:, came with macOS 12.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

LIBOBJC = "/usr/lib/libobjc.A.dylib"
METAL = "/System/Library/Frameworks/Metal.framework/Metal"
CORE_GRAPHICS = "/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics"


@dataclass(frozen=True)
class Message:
    """owner: the protocol or class whose objects take it; class methods have a + before it."""

    owner: str
    selector: str
    encoding: str

    def __str__(self) -> str:
        sign = "+" if self.owner.startswith("+") else "-"
        return f"{sign}[{self.owner.removeprefix('+')} {self.selector}]"


@dataclass(frozen=True)
class Function:
    """A C function of a library."""

    library: str
    name: str
    encoding: str


GET_CLASS = Function(LIBOBJC, "objc_getClass", "#*")
REGISTER_NAME = Function(LIBOBJC, "sel_registerName", ":*")
PUSH_POOL = Function(LIBOBJC, "objc_autoreleasePoolPush", "^v")
POP_POOL = Function(LIBOBJC, "objc_autoreleasePoolPop", "v^v")
COLOR_SPACE_TYPE = Function(CORE_GRAPHICS, "CGColorSpaceGetTypeID", "Q")
COPY_ALL_DEVICES = Function(METAL, "MTLCopyAllDevices", "@")
CREATE_SYSTEM_DEFAULT_DEVICE = Function(METAL, "MTLCreateSystemDefaultDevice", "@")
SEND = "objc_msgSend"

RETAIN = Message("NSObject", "retain", "@@:")
RELEASE = Message("NSObject", "release", "v@:")
NEW = Message("+NSObject", "new", "@@:")
STRING = Message("+NSString", "stringWithUTF8String:", "@@:*")
UTF8 = Message("NSString", "UTF8String", "*@:")
COUNT = Message("NSArray", "count", "Q@:")
OBJECT_AT = Message("NSArray", "objectAtIndex:", "@@:Q")
DESCRIPTION = Message("NSError", "localizedDescription", "@@:")

DEVICE_NAME = Message("MTLDevice", "name", "@@:")
SUPPORTS_FAMILY = Message("MTLDevice", "supportsFamily:", "B@:q")
MAX_BUFFER_LENGTH = Message("MTLDevice", "maxBufferLength", "Q@:")
WORKING_SET = Message("MTLDevice", "recommendedMaxWorkingSetSize", "Q@:")
HAS_UNIFIED_MEMORY = Message("MTLDevice", "hasUnifiedMemory", "B@:")
MAX_THREADGROUP_MEMORY = Message("MTLDevice", "maxThreadgroupMemoryLength", "Q@:")
NEW_QUEUE = Message("MTLDevice", "newCommandQueueWithMaxCommandBufferCount:", "@@:Q")
NEW_BUFFER = Message("MTLDevice", "newBufferWithLength:options:", "@@:QQ")
NEW_SHARED_EVENT = Message("MTLDevice", "newSharedEvent", "@@:")
NEW_LIBRARY = Message("MTLDevice", "newLibraryWithSource:options:error:", "@@:@@^@")
NEW_PIPELINE = Message("MTLDevice", "newComputePipelineStateWithFunction:error:", "@@:@^@")

COMMAND_BUFFER = Message("MTLCommandQueue", "commandBuffer", "@@:")

COMPUTE_ENCODER = Message("MTLCommandBuffer", "computeCommandEncoder", "@@:")
BLIT_ENCODER = Message("MTLCommandBuffer", "blitCommandEncoder", "@@:")
SIGNAL_EVENT = Message("MTLCommandBuffer", "encodeSignalEvent:value:", "v@:@Q")
WAIT_FOR_EVENT = Message("MTLCommandBuffer", "encodeWaitForEvent:value:", "v@:@Q")
COMMIT = Message("MTLCommandBuffer", "commit", "v@:")
WAIT_UNTIL_COMPLETED = Message("MTLCommandBuffer", "waitUntilCompleted", "v@:")
STATUS = Message("MTLCommandBuffer", "status", "Q@:")
ERROR = Message("MTLCommandBuffer", "error", "@@:")
GPU_END_TIME = Message("MTLCommandBuffer", "GPUEndTime", "d@:")

END_ENCODING = Message("MTLCommandEncoder", "endEncoding", "v@:")
SET_PIPELINE = Message("MTLComputeCommandEncoder", "setComputePipelineState:", "v@:@")
SET_BUFFER = Message("MTLComputeCommandEncoder", "setBuffer:offset:atIndex:", "v@:@QQ")
SET_BYTES = Message("MTLComputeCommandEncoder", "setBytes:length:atIndex:", "v@:^vQQ")
DISPATCH = Message(
    "MTLComputeCommandEncoder", "dispatchThreadgroups:threadsPerThreadgroup:", "v@:{?=QQQ}{?=QQQ}"
)
COPY = Message(
    "MTLBlitCommandEncoder", "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:", "v@:@Q@QQ"
)
FILL = Message("MTLBlitCommandEncoder", "fillBuffer:range:value:", "v@:@{_NSRange=QQ}C")

CONTENTS = Message("MTLBuffer", "contents", "^v@:")
LENGTH = Message("MTLBuffer", "length", "Q@:")

SIGNALED_VALUE = Message("MTLSharedEvent", "signaledValue", "Q@:")
SET_SIGNALED_VALUE = Message("MTLSharedEvent", "setSignaledValue:", "v@:Q")
WAIT_SIGNALED = Message("MTLSharedEvent", "waitUntilSignaledValue:timeoutMS:", "B@:QQ")

# macOS 15 prefers mathMode; NO is its MTLMathModeSafe
SET_FAST_MATH = Message("MTLCompileOptions", "setFastMathEnabled:", "v@:B")
NEW_FUNCTION = Message("MTLLibrary", "newFunctionWithName:", "@@:@")
MAX_THREADS = Message("MTLComputePipelineState", "maxTotalThreadsPerThreadgroup", "Q@:")
STATIC_MEMORY = Message("MTLComputePipelineState", "staticThreadgroupMemoryLength", "Q@:")


class Status(IntEnum):
    """MTLCommandBufferStatus."""

    NOT_ENQUEUED = 0
    ENQUEUED = 1
    COMMITTED = 2
    SCHEDULED = 3
    COMPLETED = 4
    ERROR = 5


class Family(IntEnum):
    """MTLGPUFamily, of Apple's own GPUs: M1, M2, M3 and M4. Later ones, such as M5 (Apple10), support these, too."""

    APPLE7 = 1007
    APPLE8 = 1008
    APPLE9 = 1009


STORAGE_SHARED = (
    0  # MTLResourceStorageModeShared; the other options' bits are 0, too: default cache, tracked hazards
)
MAX_BUFFERS = 31  # entries of the buffer argument table
MAX_BYTES = 4096  # of setBytes
COPY_ALIGNMENT = 4  # bytes: of offsets and sizes of blit copies and fills on macOS
