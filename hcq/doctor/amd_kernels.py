"""The doctor's kernel for AMD GPUs: code objects, packed into text.

In       an architecture
Out      a code object with the kernel triple_plus_index(out, a): out[i] = 3 * a[i] + i, in groups of 64
Changes  nothing
Next     kernels.py (who hands them out)
Source   SOURCE below, compiled by LLVM 22 for each architecture; a test compiles it again and compares

Each text is the object compressed with zlib and written in base 85, so that no compiler is needed to examine a GPU.
"""

from __future__ import annotations

import base64
import zlib

GROUP = 64

SOURCE = r"""target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @triple_plus_index(ptr addrspace(1) %out, ptr addrspace(1) %a) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %base = mul i32 %g, 64
  %i = add i32 %base, %t
  %ap = getelementptr i32, ptr addrspace(1) %a, i32 %i
  %v = load i32, ptr addrspace(1) %ap
  %m = mul i32 %v, 3
  %r = add i32 %m, %i
  %op = getelementptr i32, ptr addrspace(1) %out, i32 %i
  store i32 %r, ptr addrspace(1) %op
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
attributes #0 = {
  "amdgpu-flat-work-group-size"="64,64" "amdgpu-no-implicitarg-ptr" "amdgpu-no-dispatch-ptr" "amdgpu-no-queue-ptr"
  "amdgpu-no-dispatch-id" "amdgpu-no-workgroup-id-y" "amdgpu-no-workgroup-id-z" "amdgpu-no-workitem-id-y"
  "amdgpu-no-workitem-id-z" "amdgpu-no-hostcall-ptr"
}
"""


def image(arch: str) -> bytes:
    """The code object of an architecture; b"" when there is none."""
    packed = OBJECTS.get(arch)
    return zlib.decompress(base64.b85decode("".join(packed.split()))) if packed else b""


OBJECTS: dict[str, str] = {
    "gfx90a": """
        c-rk&&1=*^6raha-QA*C^`bWwK|JgrJyj4~K`nwxFGX*|Y%-gM%_d=HvfX-U*RNZl+J8VqYY(L@#SbhVT0DBQN9n<1kNOX&lT3EI
        W|LOXi?9zSlli@QZ|2SWy<}#u-Mp?rSk{3O2)@eJE3F~bUmgIU9KDr6F?HtuB^nsoieI-2hoJrpXlFDqzx_aJX1C@xbDB1z>4g!P
        9~uR%@f{t^LZ}sHfUb||`N2{D$lNB-c0a>B)IrPNkyg^x{Y`md{nl^&)^7(iCBuL4t%A{4cMUwr0dPLX@}aE;z$w{Zxpj4Hd;)-n
        tE6sDa)N4<xzyoL=a&(&e1;7#a0OUIgjsyy@hT#w$tdTT`^2EHEXS)5XA!xiPG5L|SVCU4%4ul8?R&Jaj2grVD6ZMAxuPcHN>Hs*
        wy&$_r0uA1prZ|BF)#2jr&gW10$1%OHF0PJ-bK;Kop+SPu`Rdowg(TV55Grs(!^DV2t4JnTI^P8%4%2Zg4w=9vF`*N%YD%12jnxm
        K?F@(eHro20Ulmg1Mb_76QAi4;?wnt=e+50i)!X;6mZJ1IV~5q4a@~GY9HkxbUY5Ot3kKNH8e#Uw933VqVh_dR3T%fVndEB!!60K
        q!gu+Rc&6pK-$S~P{wV~U4Yttoca+xzyD0)D8>g9xScWoMvNB|_$8?D<W1pAhM$)i_@fLw^m{C~7vkNxKPMGOL9T<B6Llu9F`(F8
        cRh&%NYJJLNL3XI^CKx`*MmCmos8U|j>8<Lt16U*Ov=<_lCGL095ZSJQ6@9=l2#ExOhqh!Tu)Fmc6*|v#=TY%8>7<T1|!0lOqtVF
        3#tMlw;+w)St~RQ10XJ#AQcdnN7OUw5X3x_2=Y(vZ+B##b18TsCZd47eCd|sF*cY+tnl8egMA%1P(jHeYYqI)yCe_WVo75?1^-r1
        {fTxwK*bru9sFcUOrdNIWdB3D<<no<pN8rmq-EHjO(>GbiD9p8D7*PMZn(E@F(v+Ag}Uor
    """,
    "gfx942": """
        c-rk&y=xRf6o0$7x!eWuv(ZjPu(~P4MzA<R4MLPO!E%_}o!u<AU(C#2E;czec7b620TGQULK1=>7%UPj?Mx{tEK}+~pw52W<=oqi
        0d0hP@OE~7?_>7Odv9mvZcW@)6{W60LJEA9JV>3fWSkfQsK;-0sOD<^XQYhnq;I?GF-3a@>O~b6cOQWYb2|&$8dP@6P}QI_xu?OL
        qRP1@=fR1EZGipH%BUh`!JgEXE*?s(Gvpx;dB{iPgiapiR~7$tH(<U5P)V`T$W{e7FUK2qZ;nq+0X$wOt})FCYEtG=hd*6hMZ^ji
        *8R{Eu#5<^_|lVgL=1yb&M^;&PG4D$-yqI1@`y`c_@P)qzG-qA8F2dnt*oLJaYBllwr8v*%D54lCS`}ZdQQ5IDt~meg)HWW0p`?l
        sVA^$x2b_6BX}1_Bfq>SB#v!)mA3<Uq<-=}a!DJT4iR|9XU){Dl+=^2+7!$V9Et-c<XC<OZGS)kvs*;aywz6`?``1m&1Av@+i}u8
        T|s=-ZTQZc0k^1Wyhb6X92>K8VOz&s5WV?PZbHvvc{7>xd)z=Xq(x2UrxDfH(xeI*D-~OEX6ar{4z)y3t666I+SM!F<hLl}w(l*;
        BkK_Q5kJ5G%;G4;%Ng7*(7%)7l?;Ae$=Cl<;OAulK3{-G?oXEvLYz#;%TjO(N<F-u=`(qak@uIrz8gp!AVJ##P|{T>%8x85+YMbl
        sEoYO#ZeCPMGeZLN-C6Nk}sMj95bqiaV87ovaI3)F_OXp<oSZ4@q1IXWIkvWS7Y27TxUe+(>XeQy^wT3>=yFMyJ&@$t^?wN3DSV5
        J>rp3halz~M38@SeY-F7T*|>K)ikZjV7>IynG`GM6;^cb)!<MEj*>vxChLs+UU%6#?2;vowH*9g+DK=+@jw!1x4*jhxty3H+8HT6
        L;C5{U)o<#k~2sxu)mZMWVaJ5gSHXvkEU@e2kTaI;{OGV-|a#
    """,
    "gfx1100": """
        c-rk%%W4!s6usR&Ga11^R0Lg_ADAM6EL^x4K@EaR5aPC|nXc}1re9Q5PbM-T_&~CfWa%b|#6Ut4gAYtxjQ9^Gn+O5FKoE2xYV{+N
        $#hQ?bfMsd>gqc8)UC%oxBJ$`E0<J7Dd!+I1$Jdi+eBa7pO>v1y_MleCi7pj;wSm|0&rui|EQ9ih5M~}P)8Ivw|yH_==(a;3NdXG
        wpCSyTyyZ9mRphszrLeEGyhqeX=%-GTlqdE2a*Glqe#9Yc}m2a+ySjAmw4I&nE&7Yx)$5OFDNDEtnEJ3q-v6a3CrS)3NRSf#?=d>
        W8(mKR*9oeaDr--xzy&f4;Bz%CZD^viioZ=$~opfsnRE=?Nx}qfL!9x$6g>7k!Kj33Rpngx=D-6s7~yF;+o~^D=`^Y0>hx}&`^)a
        UZCPn18pFad4Z2PH67{-Y*-Dd<8TtZj1C}o-gXk(GTq{f6duwCULl7xuwfH{r#x0m!b(p$-qpHbmTyz++X2UNAGGlr`OK;lL9<q0
        M%?rnu6lth2G-*N_buCwAy`Cw+NpT<^Hf+=)1RS$Q;zj%xv*8mT##z*t-OSG#KL+!=#03ArbwL{%u7x*xPkT$;xn%*Z`)(o@pP)J
        Bq<j18mQQmBeUw3WLJtErIKkhhKGlS_Owu^j9Z>Nr>KW&Y%_X({N9aU?t!BOFLdE|d+_xhc=#nhuI=y5PWlhB9Rsb6m%HjEFI%Cr
        ep1;0BxpkbimL;Kmo9Z;If28|WaI`84inSEMY3HJgkwglL3G7E{89^1R`pm7fLu>dG<t2k6pz!hI>Z@EGMWNedIQ7-6Qly6D5IWH
        n;_=tM36u6my$oIjx6lkSd#dYN;;pNb|S$FS&0u#g+l}MD>0N(uXa!u-8yOiW#!~t27Wf#(5XFM60!&f@zWV+iq_Gx@2i`;^qceF
        C*OLt$NZ5lM=m2^R^>PHasQ@c-9pCse*gp&3zP
    """,
    "gfx1101": """
        c-rk%OKTKC5UzRbLs5u|peOSOwlR={2M;S~f}j$FcpZ9odM1;d7u`LZjVuTnk(?y?13@GP5|S8vVB%rL|6p>75bzfWf*wTenVuw@
        -PtJULBWEWn*OS~`cYra+_`dXNL7@w4pJ1@5!x+d1!;$bmXo(K9LbFQ$3!W963;IHw>H&diarAmT63TdDsXY@E~rrWI^BvfZ5+1p
        stS6u|6M^}6bHY#twA&QS(|QY&2O8zf}(?n(M60R;uR5>OX9}2L2HU7p0)ty{_9_-Qu=;@Dl%quXG#MorVSIf#W@wAU)W36FAtB5
        0^D1{o;k)asuAiFm(4t!N0{1d_WlaOrb!871`BbOJh9!Ng57!KV~;!zBEEnE%VLDXJYvpmQd~lH>_)_>Ilj3pgN;gLS%e;%>Ji>e
        RQze8b!5{Z3JpeVkNDiMoCYzCcoMu!4j^{E=ftjK`^6VscpTpM3VFC;ST5$qL_lk4THz_nU9EBIgf1~cH)4j^2Wh-UA$97QldRR3
        5VJ#SRD;OpN7v+lg^ue=2o?~V^eTb-yeloLna@zf2s6w{v9MD$7{}GxTX6|{8S`s$(4KJ>P2f7QXpo+$e;w@~B&0!A+;%_>FEEL+
        oR*l2Yao0>jO?mk5~d^_rIKwm1_sU#>~f(_D02dTR#6Y-*hcdF_`MUq+5<-^p6|e?dc>PO@c2u9Qrq8~o7xXTPk^?Empl3;Cp6#Q
        KV8)T#7Tn#lHGygOBXzGyvSqS!N`w1BQ8u27tVH#VP;TLjgl+w;TK#;s%lC$0P+J)(D04Xk{ox>Y9ptlWHJS^_y&k^%5eo^QYMxX
        7b6;&nBzb3n-V{$wkqt)NLu*QN_Rcm<y4C0vkD)J3Wp{*u1Khhz1l%ubn;|Ziej>!fnP{BbY?d$O<9D4_}PpzCF^KCe(N3M#owI&
        KK<6KJ?0N~IP{E!S)Jd=N&BX4-F(LRe*nAW3xo
    """,
    "gfx1102": """
        c-rk%O>5LZ7=DxNZdb5S6+ut-5A0y22M-=rP>Y~agnA9Ln@O5(zL=S8x3VDkf%GKp(Mu7jg_gD!Kd|+%;(xHcR4Dih1VIm?PBQ6s
        yUA8T4+_38nauM(^UlZnyvePLS1zfFQqF-i1$IPB+jyVsM?@>fZ)G@?$^6%>_(?pz0NmK@Kdj_t;C^ck)L{kAZQTYH`o2!LB21fr
        Emc(^*BpGO<rc-kuWxJ6%zxIVTUztmX1-6!f#87PD1xsDo)YsWwn1x(C7!kb=Ki<8u1OpC1*J&N>dr$=s3s|xs4PyY0E41GfAzx1
        =orAA73>=045J#M9&y;rgL#Ch#b)oVAZ!?vFs8ErSIHC0@hjMwM;>;`V?X2z$Tv+!ILsqv-z3E)RL4$8^qTD%%aW{DLenJlz)+9y
        ZlK~%1Fa*A`eC3mV!6cQx@k9vp+}S8Wqbg!^R^Q^w&fLHr0|G7@Cv!Op_>lo`lL^5Nm$`2%U!K;Y6lL{11Ds<*avC6Mgg_!n3Js4
        mk_f8s#pEc;{$7QzyjNGBm@hHO}Q1{d7cW3YQ{4ZGQxCYN-S(wb;fbE_Eua%J7Qr?4mu;QqDfpQCiRmO4X&fTg9OyCire<7?)nB%
        mXj27aSeoTh>=zGN}?-CN2z3)jiI5_XLhwvCzRQ~H>;=zYHTBZe*E5zU+#gU1TS>qcYE-S9(eR6KdSBR%}M$Xq8$OPjhDOXB`;c`
        vwl+90K`dy1CrH&qDvP#vE9&RX)^LcSC10Y!-cb5<Cy7`RKxg+d-#PG;;b4{4S+nK6Et#dtR%<jSsmh(l8mQ7mfip{PC2eXB+9s_
        #KDOA2Ilxr{H4SXsv`?~Hku^<xRTCiryWbMLRR7<Q{lh>{fdNA>ecq^qFX2JzpR*?%fQbj8#=MeOF|Z5KYlXfOz}Ee_I-787k_j9
        `{Y}%_Lx81<;Z0O%&PoGUiNP~)-7b5{|7~M3!D
    """,
    "gfx1200": """
        c-rk%&1(}u6o0#$rV$jYBIwEf0~xCH;7KB=RZ!`rUWZ9`cDrW3n3+wZ6f9cNo3wW+BDK)cYViYG4=G;!3#=!h;JqMt=*c>}vrW@v
        Qw2RJ_+T=b_kQoq%zM8#d*|ZSOS-0&a-c+m4LLexv{%iS<tQcpN^l?(`Hx8nzRBM$fE(-4K`l204;nL|58eg+9KeT0yf$vaCtcSe
        H{Soz$jxix(6ebsCnE{4)-cAuuN%Eu4kQjF?(z1+h9<FEjGf4D0!*ZddeH!w`9J=up``B@sG=~3HzsA_3u(i|ZE;Em=$G^PYZr!w
        M*!|E5zidu1XU^XsmrGx%_72VK7D@)5z}OpbIe0hq0ekLC=+)U`NX47gGkJwz_K_MFpIczn-&&OjkpoTRmV3M6&RNz%c5-GP*2EC
        pu$fBtst8PQHVLUJ?aZ=Idy8{*a_Yw7mz1!8j0)Je&Kb8K8E+bMINbR%OwJj1+1Eem6nn^)v{nt=u#ZI5y$czwEhl-%&8GUvvyxV
        +zuJ81d%WD%WA<x$90to<`BQ-l>_%xM_5!fU!sUpj?G(gW2b_-AeHKSnS^G<o@KRYjrbgmks7sFklv_&1?^rWWI;t{J7CxgOsXxW
        B^ELbRIJLCUGa-@Dk?*<Xj}EuX9fm#xKN{vJApr~>HBhQHTnIz-LAjVMUPT_Pn&+S3*PLaj~}R`#_rj|bp9g8k@Tg5=G(v9FY&(l
        *8b_J1|UJ}0+8ws6enHs#PK4JcY={0c{nai7Zb@gjS`L-twc$RyVxZclB$}D4S@VWP&9OXq^Q=NUM=KQluTS8i*JCqV1kq(CS@`+
        >Jr2PlL+!BK2uxG@6BEr&a3&j)>+S1IhN}3S%r^9hkXMa(v+%$y~bW%wDV*~3eq{3p+B1*=)?{#4OxJ_`jZ)VO7=0b^VN=>|4skT
        >07UN@gHn6<T3(gb$&f<+_jc{^BMR50g(#{%K
    """,
    "gfx1201": """
        c-rk%&1(}u6o0#$rV$js5cFjKfeco9@FWq`B53KQUWZ9`cDrW3n3+veDOj|kH)-!uL~5a>)#3-X9#Xvc7g$e1!FxgQ(35p`XVa$1
        rV4sc@WEs<@BQAJnfHEg_Rf{-S9MJ*<v@uBn{sr@Xs?=w<R~ToN^mF>`Hx8nzRBNhfSVi9VJ$Ze4;r(e58MU)BEW}6yf$vZCtcSe
        H_`Xe$Sr6S(6ePoCnE{4-Y_P<Zy3E=4kQjF?(xpUh9<FEjGfGH0ZgWedeH!w{XhPyq2$;vP(@*mZcfR<7t)4_+v2Pa&?o0hH!cqj
        j{w|TCZ0LU393@&Q<qOannQ%yeCGZ#BBseG=a`42LZ8`gP$upi@`*>E29cOYfn{+jU=DHTHZ3fo8gV0vtB!9jDKIWamPOftp`MUt
        pu$fBts<KRQHVLUJ?aZ=Idy8{*a_Yw7mz34H4@jc{le=GeGEVL7I~zOEtd#97O-j>R$5BxR4alxp-XY-MjXp?(E2+RGN(oa&Dwnt
        aXVzV5=6epuc!qN9oJPVm`8lvD+lhYj<Bd|zC;nH9Gl~EW2b_-AeHKSnS|YlJu7O_8u2+ABQ<KVAiYuFD%!h9$byQ@cEGR~m{eOz
        ODtp>s92LLyW$t+R8)py(YEUS=g;*wxlp5wJApr==?8LbE&2Vr)2_ePMUPT_Pn&+K3*PLaj~}QL#@^Y&bp9g8@${vG-M4?QU*di9
        t^Lzc4M2j{1t8TOC{DWMiQ`2c?*t=1@^D<3E+&#~8YLVvT8WYrcd<(@BvmyP8vyx%plEPtq^Q=NUM=KQluTS8i*JCqV1kq(CS@`+
        >Jr2PlL+!BK2zJf-<$n1oLBQHt+Sr3ax&HBvkD)J4hIG}qA67edyW0PXy-{&3eq{3p}&wG=yVg8hAhB-{h5qACHolJ`D({5{HFis
        ^sU#s_z$!hav1@$I=`Ma?t06<`HcJj0L~)`(f
    """,
}
